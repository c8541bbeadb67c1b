// The dashboard's page. What it shows came from workers that may lie: every text is set as text (textContent), never as
// HTML. The server's Content-Security-Policy forbids the other ways too (Trusted Types, no inline script).

import {COLORS, PARTS, drawCharts, resetZoom, set} from "./charts.js";
import {$, make} from "./elements.js";
import {bytes, number, time} from "./format.js";
import {listRuns} from "./compare.js";
import {showHosts} from "./hosts.js";
import {followMetrics} from "./metrics.js";
import {STORED, ask, download, notice, problem, request, takeOrders} from "./orders.js";
import {drawStaleness} from "./staleness.js";
import {drawTopology} from "./topology.js";

const points = [];
let lastEvent = 0, secretForAll = false, over = false, paused = false, latest = null, seenAt = 0;

// ---------------------------------------------------------------------------------------------- what is shown

const KIND = {finished: "good", failed: "bad", interrupted: "bad", training: "busy", running: "busy"};

function showRun(run) {
  document.title = `${run.run} – taut`;
  $("name").textContent = run.run;
  $("state").textContent = run.state;
  $("state").className = `chip ${KIND[run.state] ?? ""}`;
  $("how").textContent = [run.strategy, run.topology, run.codec].filter(Boolean).join(" · ");
  over = run.state === "finished" || run.state === "failed";
  for (const act of ["unlock", "end", "checkpoint", "tune", "pause"]) $(act).hidden = over;  // nothing is left to steer
  $("pass").hidden = run.epoch === null || !run.samples_total;
  if (!$("pass").hidden) {
    const share = run.samples_done / run.samples_total;
    $("done").value = share;
    $("passname").textContent = `pass ${run.epoch + 1}: ${Math.floor(100 * share)}% of ${number(run.samples_total)} samples`;
  }
  const figures = [
    ["time", time(run.wall_s)],
    ["workers", run.state === "waiting" ? `${run.workers} of ${run.workers + run.expected}` : `${run.workers}`],
    ["samples", number(run.samples)],
    ["samples/s, all the time", number(run.samples_per_s)],
    ["sent", bytes(run.bytes_sent)],
  ];
  if (run.loss !== null) figures.push(["loss", number(run.loss, 4)]);
  if (run.staleness !== null) figures.push(["staleness, steps", number(run.staleness, 1)]);
  if (run.consensus !== null) figures.push(["consensus distance", run.consensus.toPrecision(2)]);
  if (run.rate !== 1) figures.push(["learning rates, times", String(run.rate)]);
  if (run.slack) figures.push(["slack", `2^${Math.log2(run.slack)}`]);
  if (run.identical !== null) figures.push(["replicas", run.identical ? "identical" : "different"]);
  $("figures").replaceChildren(...figures.map(([label, value]) => {
    const card = make("div");
    card.append(make("b", value), make("span", label));
    return card;
  }));
  notice("run", run.error);
}

// Rows are kept and changed in place: a button that is replaced between press and release is never clicked.
const rows = new Map();

function workerRow(rank) {
  const row = make("tr");
  for (const head of $("workers").closest("table").querySelectorAll("th")) {
    row.append(make("td", "", head.className || "text"));
    if (head.className) row.lastChild.dataset.label = head.textContent;  // shown where there is no room for a table
  }
  for (const [order, label] of [["pause", "Pause"], ["drain", "Drain"]]) {
    const button = make("button", label);
    button.type = "button";
    button.dataset.rank = rank;
    button.dataset.order = order;
    button.setAttribute("aria-label", `${label} worker ${rank}`);
    row.lastChild.append(button);
  }
  const bar = row.cells[9].appendChild(make("div", "", "bar"));
  bar.setAttribute("role", "img");
  PARTS.forEach((part, index) => { bar.appendChild(make("span")).style.background = COLORS[index]; });
  return row;
}

function showWorkers({total, workers}) {
  $("count").textContent = workers.length < total ? `${workers.length} of ${total}` : "";
  const shown = workers.map((worker) => {
    const gone = worker.state === "gone";
    const row = rows.get(worker.rank) ?? workerRow(worker.rank);
    rows.set(worker.rank, row);
    row.className = gone ? "gone" : "";
    const texts = [
      String(worker.rank), worker.host,
      gone && worker.reason ? `gone: ${worker.reason}` : worker.paused && worker.state === "training" ? "paused" : worker.state,
      number(worker.steps), number(worker.samples_per_s), number(worker.loss, 4), number(worker.staleness, 1),
      bytes(worker.bytes_sent), number(worker.refused),
    ];
    texts.forEach((text, at) => {
      if (row.cells[at].textContent !== text) row.cells[at].textContent = text;
    });
    row.cells[2].className = gone && worker.reason !== "left" ? "text bad" : "text";
    row.cells[8].className = worker.refused ? "n bad" : "n";
    showParts(row.cells[9].firstChild, worker.parts);
    showOrders(row.lastChild, worker, gone || over);
    return row;
  });
  const body = $("workers");
  if (shown.length !== body.rows.length || shown.some((row, at) => row !== body.rows[at])) body.replaceChildren(...shown);
}

function showOrders(cell, worker, none) {
  const [pause] = cell.children, order = worker.paused ? "resume" : "pause", label = worker.paused ? "Go on" : "Pause";
  for (const button of cell.children) button.hidden = none;
  if (pause.dataset.order === order) return;
  pause.dataset.order = order;
  pause.textContent = label;
  pause.setAttribute("aria-label", worker.paused ? `Let worker ${worker.rank} go on` : `Pause worker ${worker.rank}`);
}

// A worker's time as a bar of its parts.
function showParts(bar, parts) {
  const whole = PARTS.reduce((sum, part) => sum + (parts[part] ?? 0), 0) || 1;
  const shares = PARTS.map((part) => 100 * (parts[part] ?? 0) / whole);
  const told = PARTS.map((part, index) => `${part} ${number(shares[index])}%`).join(", ");
  if (bar.title === told) return;  // with a hundred workers, styles that stay as they are cost much
  bar.title = told;
  bar.setAttribute("aria-label", told);
  shares.forEach((share, index) => { bar.children[index].style.width = `${share}%`; });
}

// The workers whose time can be looked at alone.
function showChoices(workers) {
  const ranks = workers.filter((worker) => worker.state !== "gone").slice(0, 100).map((worker) => String(worker.rank));
  for (const select of [$("whose"), $("staleof")]) {
    const now = [...select.options].slice(1).map((option) => option.value);
    if (ranks.join() === now.join()) continue;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...ranks.map((rank) => {
      const option = make("option", `worker ${rank}`);
      option.value = rank;
      return option;
    }));
    select.value = ranks.includes(chosen) ? chosen : "all";
    if (select.value !== chosen) select.dispatchEvent(new Event("change"));
  }
}

const fits = (line) => line.textContent.toLowerCase().includes($("filter").value.trim().toLowerCase());

function showEvents({events, last}) {
  for (const event of events) {
    const line = make("li");
    line.append(make("span", time(event.time_s)), `${event.kind}: ${event.text}`);
    line.hidden = !fits(line);
    $("events").prepend(line);
    lastEvent = Math.max(lastEvent, event.number);
  }
  while ($("events").childElementCount > 300) $("events").lastChild.remove();
  if (last < lastEvent) lastEvent = last;  // a supervisor that came back counts anew
}

function show(look) {
  secretForAll = look.run.secret_for === "everything";
  notice("connection", "");
  seenAt = Date.now();
  if (look.fresh) points.length = 0;
  points.push(...look.points);
  showEvents(look.events);
  latest = {...look, changed: look.fresh || look.points.length > 0 || (latest?.changed ?? false)};
  if (!paused) showLatest();
}

function showLatest() {
  if (!latest) return;
  showRun(latest.run);
  showWorkers(latest.workers);
  showChoices(latest.workers.workers);
  drawTopology(latest.topology, latest.workers.workers);
  showHosts(latest.hosts);
  drawStaleness(latest.staleness);
  if (latest.changed) drawCharts(points);
  latest.changed = false;
}

async function showAbout() {
  const answer = await request("/api/settings", {}, secretForAll);
  if (!answer.ok) {
    notice("order", await problem(answer));
    return;
  }
  const script = await request("/api/script");  // both need the secret: they may be nobody else's to read
  $("script").textContent = script.ok ? await script.text() : "";
  $("scriptpart").hidden = !$("script").textContent;
  const {command, settings, versions, folder, files} = await answer.json();
  $("command").textContent = command;
  const lines = [...Object.entries(settings), ...Object.entries(versions).map(([name, version]) => [`version of ${name}`, version]),
    ["folder", folder], ...files.map(([name, nbytes]) => [name, bytes(nbytes)])];
  $("settings").replaceChildren(...lines.map(([name, value]) => {
    const row = make("tr");
    row.append(make("th", name), make("td", value));
    row.firstChild.scope = "row";
    if (files.some((file) => file[0] === name)) row.lastChild.append(" ", fetchButton(name));
    return row;
  }));
}

function fetchButton(name) {
  const button = make("button", "Download");
  button.type = "button";
  button.setAttribute("aria-label", `Download ${name}`);
  button.addEventListener("click", () => download(name));
  return button;
}

// -------------------------------------------------------------------------------------------- what is heard

// An EventSource cannot send headers, so the stream is read from a fetch.
async function watch() {
  const answer = await request(`/api/stream?after=${lastEvent}`, {}, secretForAll);
  if (answer.status === 401) {
    const sent = secretForAll && sessionStorage.getItem(STORED) !== null;
    secretForAll = true;
    if (sent) sessionStorage.removeItem(STORED);
    if (sessionStorage.getItem(STORED) === null) {
      notice("connection", await problem(answer));
      await ask("This dashboard is open to other machines, so looking needs the secret too.", true);
    }
    return 0;
  }
  if (!answer.ok) {
    notice("connection", await problem(answer));
    return 5;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const {value, done} = await reader.read();
    if (done) return 2;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const data = message.split("\n").find((line) => line.startsWith("data: "));
      if (data) show(JSON.parse(data.slice(6)));
    }
  }
}

async function keepWatching() {
  for (let wait = 0; ;) {
    try {
      wait = await watch();
    } catch {
      wait = 2;
    }
    if (wait === 2) notice("connection", over ? "The run is over, and its server has ended: taut dashboard RUN shows it again."
      : `The server does not answer; trying again. What is shown is ${time((Date.now() - seenAt) / 1000)} old.`);
    await new Promise((resolve) => setTimeout(resolve, 1000 * wait + 200));
  }
}

takeOrders(() => latest?.run);
listRuns(() => secretForAll);
followMetrics(() => secretForAll, () => paused || latest === null);
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on showing" : "Pause the page";
  if (!paused) showLatest();
});
$("view").addEventListener("submit", (event) => event.preventDefault());
$("smoothing").addEventListener("input", (event) => set("smoothing", Number(event.target.value)));
$("log").addEventListener("change", (event) => set("log", event.target.checked));
$("perworker").addEventListener("change", (event) => set("perWorker", event.target.checked));
$("whose").addEventListener("change", (event) => set("worker", event.target.value === "all" ? "all" : Number(event.target.value)));
$("staleof").addEventListener("change", () => drawStaleness());
$("whole").addEventListener("click", resetZoom);
$("filter").addEventListener("input", () => {
  for (const line of $("events").children) line.hidden = !fits(line);
});
$("about").addEventListener("toggle", () => { if ($("about").open) showAbout(); });
keepWatching();
