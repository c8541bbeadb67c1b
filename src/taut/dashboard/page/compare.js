// Several runs of the same folder side by side, chosen from a list: their curves in one picture, their figures in a table.

import {COLORS, Chart} from "./charts.js";
import {$, make} from "./elements.js";
import {bytes, number, short, time} from "./format.js";
import {notice, problem, request} from "./orders.js";

const MOST = 8;
const chosen = new Map();  // by name, in the order of choice: what the server said of the run
let secretNeeded = () => false;

const TIME = 0, SAMPLES = 1, LOSS = 2, RATE = 3;  // of a point
const against = () => $("against").value === "time" ? TIME : SAMPLES;

// Curves with times of their own on one axis: uPlot.join puts them on the union of the times.
function kind(field, format) {
  const joined = (runs) => runs.length ? uPlot.join(runs.map((run) => {
    let last = -1;
    const points = run.points.filter((point) => {  // a run that was resumed has counted anew
      const further = point[against()] > last;
      last = Math.max(last, point[against()]);
      return further;
    });
    return [points.map((point) => point[against()]), points.map((point) => point[field])];
  })) : [[]];
  return {
    format, alone: true,
    x: (runs) => joined(runs)[0],
    tick: (value) => against() === TIME ? time(value) : short(value),
    xlabel: () => against() === TIME ? "time" : "samples",
    lines: (runs) => {
      const values = joined(runs).slice(1);
      return runs.map((run, at) => ({label: run.run.run, values: [...values[at]].map((value) => value ?? null), width: 2, stroke: COLORS[at % COLORS.length]}));
    },
  };
}

const charts = [new Chart("otherloss", kind(LOSS, (value) => number(value, 4))), new Chart("otherrate", kind(RATE, short))];

function show() {
  const runs = [...chosen.values()].filter(Boolean);
  $("comparison").hidden = $("chosen").hidden = !runs.length;
  if (runs.length) for (const chart of charts) chart.draw(runs, true);
  $("sidebyside").replaceChildren(...runs.map(({run, score}, at) => {
    const row = make("tr"), name = make("td", "", "text"), mark = name.appendChild(make("span", "", "mark"));
    mark.style.background = COLORS[at % COLORS.length];
    name.append(run.run);
    row.append(name, make("td", run.state), make("td", [run.strategy, run.topology, run.codec].filter(Boolean).join(" · "), "text"),
      ...[number(run.ranks), time(run.wall_s), number(run.samples), number(run.samples_per_s), number(run.loss, 4),
        score === null ? "–" : short(score), bytes(run.bytes_sent)].map((text) => make("td", text, "n")));
    const heads = document.querySelectorAll("#chosen th");
    [...row.cells].forEach((cell, at) => { cell.dataset.label = heads[at].textContent; });
    return row;
  }));
  for (const box of $("runs").querySelectorAll("input")) box.disabled = !box.checked && chosen.size >= MOST;
}

async function fetched(path) {
  const answer = await request(path, {}, secretNeeded());
  if (answer.ok) return answer.json();
  notice("order", await problem(answer));
  return null;
}

async function choose(name, wanted) {
  if (!wanted) chosen.delete(name);
  else {
    chosen.set(name, null);
    const found = await fetched(`/api/runs/${encodeURIComponent(name)}`);
    if (chosen.has(name)) chosen.set(name, found);
  }
  show();
}

async function list() {
  const found = await fetched("/api/runs");
  if (!found) return;
  $("runs").replaceChildren(...found.runs.map((run) => {
    const line = make("li"), label = line.appendChild(make("label")), box = label.appendChild(make("input"));
    box.type = "checkbox";
    box.checked = chosen.has(run.run);
    box.addEventListener("change", () => choose(run.run, box.checked));
    label.append(make("b", run.run), make("span", [run.state, run.strategy, `${run.workers} workers`, new Date(1000 * run.started).toLocaleString()].join(" · "), "quiet"));
    return line;
  }));
  await Promise.all([...chosen.keys()].map((name) => choose(name, true)));
}

// `needed`: whether looking needs the secret here.
export function listRuns(needed) {
  secretNeeded = needed;
  $("others").addEventListener("toggle", () => { if ($("others").open) list(); });
  $("again").addEventListener("click", list);
  $("against").addEventListener("change", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
}
