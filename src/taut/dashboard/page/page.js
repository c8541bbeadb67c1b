// The dashboard's page. What it shows came from workers that may lie: every text is set as text (textContent), never as
// HTML. The server's Content-Security-Policy forbids the other ways too (Trusted Types, no inline script).

const $ = (id) => document.getElementById(id);
const STORED = "taut-dashboard-secret";  // of this tab and this origin; a cookie would go to every port of the host
const points = [];
let lastEvent = 0, secretForAll = false, over = false;

// A link from `taut dashboard RUN --link` carries the secret behind the #, which browsers do not send.
const linked = new URLSearchParams(location.hash.slice(1)).get("secret");
if (linked) {
  sessionStorage.setItem(STORED, linked);
  history.replaceState(null, "", location.pathname);
}

const make = (name, text = "", kind = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
};

const number = (value, digits = 0) =>
  value === null ? "–" : value.toLocaleString("en", {maximumFractionDigits: digits, minimumFractionDigits: digits});

const bytes = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; value >= 1000 && at < 4; at++) value /= 1000;
  return `${number(value, at ? 1 : 0)} ${units[at]}`;
};

const time = (seconds) => {
  const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
  return whole < 3600 ? `${Math.floor(whole / 60)}:${two(whole % 60)}`
    : `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
};

// Above the figures: what came of the last order, and what is wrong with the run or the connection just now.
const notices = {order: "", run: "", connection: ""};

function notice(what, text) {
  notices[what] = text;
  const told = Object.values(notices).filter(Boolean).join(" · ");
  if ($("notice").textContent !== told) $("notice").textContent = told;
  $("notice").hidden = !told;
}

// ---------------------------------------------------------------------------------------------- what is shown

const KIND = {finished: "good", failed: "bad", interrupted: "bad", training: "busy", running: "busy"};

function showRun(run) {
  document.title = `${run.run} – taut`;
  $("name").textContent = run.run;
  $("state").textContent = run.state;
  $("state").className = `chip ${KIND[run.state] ?? ""}`;
  $("how").textContent = [run.strategy, run.topology, run.codec].filter(Boolean).join(" · ");
  over = run.state === "finished" || run.state === "failed";
  $("unlock").hidden = over;  // nothing is left to steer
  const share = run.samples_total ? `${Math.floor(100 * run.samples_done / run.samples_total)}%` : "";
  const figures = [
    ["time", time(run.wall_s)],
    ["workers", run.state === "waiting" ? `${run.workers} of ${run.workers + run.expected}` : `${run.workers}`],
    ["samples", number(run.samples)],
    ["samples/s, all the time", number(run.samples_per_s)],
    ["sent", bytes(run.bytes_sent)],
  ];
  if (run.epoch !== null && share) figures.splice(1, 0, ["epoch", `${run.epoch + 1}, ${share}`]);
  if (run.staleness !== null) figures.push(["staleness, steps", number(run.staleness, 1)]);
  if (run.consensus !== null) figures.push(["consensus distance", run.consensus.toPrecision(2)]);
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
  for (const head of document.querySelectorAll("th")) {
    row.append(make("td", "", head.className || "text"));
    if (head.className) row.lastChild.dataset.label = head.textContent;  // shown where there is no room for a table
  }
  const button = make("button", "Drain");
  button.type = "button";
  button.dataset.rank = rank;
  button.setAttribute("aria-label", `Drain worker ${rank}`);
  row.lastChild.append(button);
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
      String(worker.rank), worker.host, gone && worker.reason ? `gone: ${worker.reason}` : worker.state,
      number(worker.steps), number(worker.samples_per_s), number(worker.loss, 4), number(worker.staleness, 1),
      number(worker.refused),
    ];
    texts.forEach((text, at) => {
      if (row.cells[at].textContent !== text) row.cells[at].textContent = text;
    });
    row.cells[7].className = worker.refused ? "n bad" : "n";
    row.lastChild.firstChild.hidden = gone || over;
    return row;
  });
  const body = $("workers");
  if (shown.length !== body.rows.length || shown.some((row, at) => row !== body.rows[at])) body.replaceChildren(...shown);
}

function showEvents({events, last}) {
  for (const event of events) {
    const line = make("li");
    line.append(make("span", time(event.time_s)), `${event.kind}: ${event.text}`);
    $("events").prepend(line);
    lastEvent = Math.max(lastEvent, event.number);
  }
  while ($("events").childElementCount > 300) $("events").lastChild.remove();
  if (last < lastEvent) lastEvent = last;  // a supervisor that came back counts anew
}

function draw(svg, pick, digits) {
  const shown = points.filter((point) => pick(point) !== null);
  const width = svg.clientWidth || 500, height = svg.clientHeight || 176;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  if (shown.length < 2) return;
  const values = shown.map(pick);
  const low = Math.min(0, ...values) < 0 ? Math.min(...values) : 0, high = Math.max(...values, low + 1e-9);
  const from = shown[0].time_s, span = (shown.at(-1).time_s - from) || 1;
  const x = (point) => 4 + (width - 8) * (point.time_s - from) / span;
  const y = (value) => height - 18 - (height - 34) * (value - low) / (high - low);
  const piece = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    svg.append(made);
  };
  for (const value of [low, (low + high) / 2, high]) {
    piece("line", {x1: 0, x2: width, y1: y(value), y2: y(value)});
    piece("text", {x: 2, y: y(value) - 3}, number(value, digits));
  }
  piece("text", {x: 2, y: height - 4}, time(from));
  piece("text", {x: width - 2, y: height - 4, "text-anchor": "end"}, time(shown.at(-1).time_s));
  piece("path", {d: shown.map((point, at) => `${at ? "L" : "M"}${x(point).toFixed(1)} ${y(pick(point)).toFixed(1)}`).join("")});
}

function drawAll() {
  const last = points.at(-1);
  $("rate").textContent = last ? number(last.samples_per_s) : "";
  $("loss").textContent = last ? number(last.loss, 4) : "";
  draw($("throughput"), (point) => point.samples_per_s, 0);
  draw($("losses"), (point) => point.loss, 3);
}

function show(look) {
  secretForAll = look.run.secret_for === "everything";
  notice("connection", "");
  showRun(look.run);
  showWorkers(look.workers);
  showEvents(look.events);
  if (look.fresh) points.length = 0;
  points.push(...look.points);
  if (look.points.length) drawAll();
}

// -------------------------------------------------------------------------------------------- what is asked

// The secret goes along only where it is needed. Should this port be somebody else's one day, looking tells them nothing.
const request = (path, options = {}, withSecret = true) => {
  const secret = withSecret ? sessionStorage.getItem(STORED) : null;
  const headers = {...options.headers, ...(secret ? {Authorization: `Bearer ${secret}`} : {})};
  return fetch(path, {...options, headers, cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer"});
};

const problem = async (answer) => {
  const told = await answer.json().catch(() => ({error: `the server answered ${answer.status}`}));
  return [told.error, told.remedy].filter(Boolean).join("; ");
};

function ask(question, secretToo) {
  $("question").textContent = question;
  $("field").hidden = !secretToo;
  $("secret").value = "";
  $("ask").returnValue = "";
  $("ask").showModal();
  return new Promise((resolve) => {
    $("ask").onclose = () => {
      const yes = $("ask").returnValue === "yes";
      if (yes && secretToo && $("secret").value) sessionStorage.setItem(STORED, $("secret").value.trim());
      $("secret").value = "";
      resolve(yes);
    };
  });
}

async function drain(rank) {
  const known = sessionStorage.getItem(STORED) !== null;
  if (!await ask(`Worker ${rank} hands over what it has and leaves; the others go on.`, !known)) return;
  try {
    const answer = await request(`/api/workers/${rank}/drain`, {
      method: "POST", headers: {"Content-Type": "application/json"}, body: "{}",
    });
    if (answer.status === 401) sessionStorage.removeItem(STORED);
    notice("order", answer.ok ? (await answer.json()).said : await problem(answer));
  } catch {
    notice("order", "the server does not answer");
  }
}

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
      : "The server does not answer; trying again.");
    await new Promise((resolve) => setTimeout(resolve, 1000 * wait + 200));
  }
}

$("workers").addEventListener("click", (event) => {
  const rank = event.target.dataset?.rank;
  if (rank !== undefined) drain(rank);
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  $("ask").close(event.submitter.value);
});
$("no").addEventListener("click", () => $("ask").close(""));
$("unlock").addEventListener("click", () => ask("To steer the run from this tab:", true));
addEventListener("resize", drawAll);
keepWatching();
