// The curves, drawn by uPlot. `points` are those of the API: all workers together, with each worker's own in `ranks`.

import {bytes, number, short, time} from "./format.js";

export const PARTS = ["compute", "encode", "send", "wait", "merge", "data", "other"];  // as records.PARTS; a test compares
export const COLORS = ["#2a78d6", "#d1701d", "#1f9a6d", "#c04a9b", "#8a6d1f", "#7a5bd0", "#c43d3d", "#3a9cab", "#6b8f1f", "#a0626e"];
const MOST_IN_LEGEND = 8;  // workers
const MOST_DRAWN = 12_800;  // values of all workers' lines of a chart: of more, each second, fourth ... is left out
const HEIGHT = 190;

const color = (rank) => COLORS[rank % COLORS.length];
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const WORKER = {rate: 1, loss: 2, staleness: 3, parts: 4};  // of a worker's point

const settings = {smoothing: 0, log: false, perWorker: true, worker: "all"};

// An exponential moving average; gaps stay gaps.
export function smoothed(values, weight) {
  let mean = null;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

const strideOf = (points) => {
  const stride = points.length * (points.at(-1)?.ranks.length ?? 0) / MOST_DRAWN;
  return stride > 1 ? 2 ** Math.ceil(Math.log2(stride)) : 1;
};

// The values of each worker, by rank, for the points of one drawing.
function workerValues(points, field) {
  const columns = new Map(), stride = strideOf(points);
  points.forEach((point, at) => {
    if (at % stride && at < points.length - 1) return;
    for (const one of point.ranks) {
      if (!columns.has(one[0])) columns.set(one[0], new Array(points.length).fill(null));
      columns.get(one[0])[at] = one[field];
    }
  });
  return [...columns].sort(([one], [other]) => one - other);
}

// Each chart: its lines, as {label, values, stroke, ...}, from the points.
const all = (label, values, more = {}) => ({label, values, width: 2.5, stroke: style("--ink"), smooth: true, ...more});

function workerLines(points, field) {
  if (!settings.perWorker) return [];
  return workerValues(points, field).map(([rank, values]) =>
    ({label: `worker ${rank}`, values, width: 1.2, stroke: color(rank), smooth: true, worker: true}));
}

const CHARTS = {
  throughput: {
    format: (value) => short(value),
    lines: (points) => [
      all("all", points.map((point) => point.samples_per_s)),
      all("ideal", points.map((point) => point.ideal_per_s), {dash: [5, 4], width: 1.5, stroke: style("--quiet")}),
      ...workerLines(points, WORKER.rate),
    ],
  },
  losses: {
    format: (value) => number(value, 4), log: true,
    lines: (points) => [all("all", points.map((point) => point.loss)), ...workerLines(points, WORKER.loss)],
  },
  split: {format: (value) => `${number(100 * value)}%`, stacked: true, lines: splitLines},
  traffic: {
    format: (value) => `${bytes(value ?? 0)}/s`, always: true,  // what is sent may be a thousandth of the other
    lines: (points) => [
      all("sent", points.map((point) => point.bytes_per_s), {stroke: style("--blue")}),
      all("uncompressed all-reduce", points.map((point) => point.dense_per_s),
        {dash: [5, 4], width: 1.5, stroke: style("--quiet")}),
    ],
  },
  stale: {
    format: (value) => number(value, 1),
    lines: (points) => workerLines(points, WORKER.staleness).map((line) => ({...line, width: 1.5})),
  },
  consensus: {
    format: (value) => value === null ? "–" : value.toPrecision(2), log: true,
    lines: (points) => [all("distance", points.map((point) => point.consensus), {stroke: style("--blue")})],
  },
};

function splitLines(points) {
  const wanted = settings.worker;
  const rows = points.map((point) => {
    const parts = wanted === "all" ? point.parts : point.ranks.find((one) => one[0] === wanted)?.[WORKER.parts];
    return parts?.some((part) => part > 0) ? parts : null;
  });
  let below = points.map(() => 0);
  const lines = PARTS.map((part, index) => {
    below = below.map((sum, at) => rows[at] ? sum + rows[at][index] : null);
    return {
      label: part, values: below, shown: rows.map((row) => row?.[index] ?? null), width: 1,
      stroke: COLORS[index], fill: COLORS[index],
    };
  });
  return lines.reverse();  // the highest sum is drawn first, the lower ones over it
}

export class Chart {
  constructor(name, kind) {
    this.kind = kind;
    this.place = document.getElementById(name);
    this.zoomed = false;
    this.plot = null;
    this.labels = "";
    this.near = null;
    this.told = document.createElement("p");
    this.told.className = "near";
    this.place.after(this.told);
    new ResizeObserver(() => requestAnimationFrame(() => {  // later: the plot's legend changes the place's height
      if (this.plot && this.plot.width !== this.size().width) this.plot.setSize(this.size());
    })).observe(this.place);
  }

  size() {
    return {width: Math.max(200, this.place.clientWidth), height: HEIGHT};
  }

  draw(points, anew) {
    const lines = this.kind.lines(points);
    const x = this.kind.x ? this.kind.x(points) : points.map((point) => point.time_s);
    const log = this.kind.always || (settings.log && this.kind.log);
    const values = lines.map((line) => {
      const drawn = line.smooth && settings.smoothing ? smoothed(line.values, settings.smoothing) : line.values;
      return log ? drawn.map((value) => value > 0 ? value : null) : drawn;
    });
    this.stride = this.kind.lines === CHARTS[this.place.id]?.lines ? strideOf(points) : 1;
    this.shown = lines.map((line, index) => line.shown ?? values[index]);
    const labels = lines.map((line) => line.label).join("\n") + log;
    if (anew || labels !== this.labels || !this.plot) {
      this.plot?.destroy();
      this.zoomed = false;
      this.labels = labels;
      this.plot = new uPlot(this.options(lines, log), [x, ...values], this.place);
    } else {
      this.plot.setData([x, ...values], !this.zoomed);
      if (this.zoomed) this.plot.redraw();
    }
    const last = lines.map((line, index) => `${line.label} ${this.kind.format(this.shown[index].at(-1) ?? null)}`);
    const told = this.kind.told ? this.kind.told(points) : points.length ? `at ${(this.kind.tick ?? time)(x.at(-1))}: ${last.slice(0, MOST_IN_LEGEND).join(", ")}` : "no points so far";
    this.place.setAttribute("aria-label", `${this.place.dataset.title}, ${told}`);
  }

  // Of lines with many values left out, the last one that is drawn.
  kept(index, at) {
    return index && this.shown[index - 1]?.[at] === null ? at - at % this.stride : at;
  }

  tell(plot, index) {
    this.near = index;
    const at = (plot.cursor.idx ?? null) === null ? null : this.kept(index, plot.cursor.idx), line = index ? plot.series[index].label : "";
    const text = line && at !== null ? `${line}: ${this.kind.format(this.shown[index - 1]?.[at] ?? null)} at ${(this.kind.tick ?? time)(plot.data[0][at])}` : "";
    if (this.told.textContent !== text) this.told.textContent = text;
  }

  // A label below each bar, as many as there is room for.
  buckets() {
    return {
      grid: {show: false}, splits: (plot) => plot.data[0],
      values: (plot, at) => at.map((one) => one % Math.ceil(30 * at.length / plot.over.clientWidth) ? "" : this.kind.label(one)),
    };
  }

  options(lines, log) {
    const many = lines.length > MOST_IN_LEGEND + 2;
    this.told.hidden = !many;
    const axis = {stroke: style("--quiet"), grid: {stroke: style("--line"), width: 1}, ticks: {show: false}, font: "11px system-ui"};
    return {
      ...this.size(),
      padding: [8, 18, 0, 0],
      cursor: {...(this.kind.alone ? {} : {sync: {key: "taut"}}), focus: {prox: 24}, dataIdx: (_, index, at) => this.kept(index, at), points: this.kind.bars ? {show: false} : {size: 5},
        ...(this.kind.bars ? {drag: {x: false, y: false}} : {})},
      focus: {alpha: many ? 1 : 0.35},  // another alpha draws all lines again at each move
      legend: {live: true, show: !many},
      scales: {
        x: {time: false, ...(this.kind.bars ? {range: (_, low, high) => [low - 0.5, high + 0.5]} : {})},
        y: this.kind.stacked ? {range: [0, 1]} : log ? {distr: 3} : {range: (_, low, high) => around(low, high)},
      },
      axes: [
        {...axis, size: 28, ...(this.kind.bars ? this.buckets() : {values: (_, ticks) => ticks.map(this.kind.tick ?? time)})},
        {...axis, ...(log ? {grid: {...axis.grid, filter: decades}} : {}), size: 58, values: (_, ticks) => ticks.map((value) => value === null ? "" : this.kind.stacked || this.kind.bars ? `${number(100 * value)}%` : this.kind.format === CHARTS.traffic.format ? bytes(value) : short(value))},
      ],
      series: [
        {label: this.kind.xlabel?.() ?? "time", value: (_, value) => value === null ? "–" : (this.kind.tick ?? time)(value)},
        ...lines.map((line, index) => ({
          label: line.label, stroke: line.stroke, fill: line.fill, width: line.width, dash: line.dash, paths: line.paths, points: {show: false},
          spanGaps: !line.fill,
          value: (_, value, __, at) => this.kind.bars && (at ?? null) === null ? "" : this.kind.format(this.shown[index].at(at ?? -1) ?? null),
        })),
      ],
      hooks: {
        setSeries: [(plot, index) => { if (many) this.tell(plot, index); }],  // a line that is near, where no legend names it
        setLegend: [(plot) => { if (many) this.tell(plot, this.near); }],
        setSelect: [(plot) => { if (plot.select.width > 2) this.zoomed = true; }],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => { this.zoomed = false; resetZoom(); })],
      },
    };
  }
}

// Of a log axis, a line for each power of ten.
const decades = (_, splits) => splits.map((value) => value > 0 && Math.abs(Math.log10(value) % 1) < 1e-6 ? value : null);

// From 0, unless the values are far from it.
function around(low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * high)];
  const room = 0.06 * (high - low);
  return [low >= 0 && low < 0.6 * high ? 0 : low - room, high + room];
}

const charts = Object.entries(CHARTS).map(([name, kind]) => new Chart(name, kind));
let shown = [];

export function drawCharts(given, anew = false) {
  const began = given.findIndex((point) => point.samples_per_s > 0);
  const points = given.slice(Math.max(0, began - 1));  // before that the run waits for its workers
  shown = given;
  for (const chart of charts) {
    const figure = chart.place.closest("figure");
    if (chart.place.id === "consensus") figure.hidden = !points.some((point) => point.consensus);
    if (!figure.hidden) waiting.set(chart, {points, anew: anew || waiting.get(chart)?.anew});
  }
  drawNext();
}

// One chart in a frame, and of many lines only those that can be seen: with a hundred workers each takes a while.
const waiting = new Map(), seen = new Set();
let asked = false;

function next() {
  for (const [chart, {points}] of waiting) {
    if (seen.has(chart.place) || (points.at(-1)?.ranks.length ?? 0) <= MOST_IN_LEGEND) return chart;
  }
  return null;
}

function drawNext() {
  if (asked || !next()) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const chart = next();
    if (!chart) return;
    const {points, anew} = waiting.get(chart);
    waiting.delete(chart);
    chart.draw(points, anew);
    drawNext();
  });
}

const eye = new IntersectionObserver((entries) => {
  for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target);
  drawNext();
}, {rootMargin: "200px"});
for (const chart of charts) eye.observe(chart.place);

export function set(name, value) {
  settings[name] = value;
  drawCharts(shown, true);
}

export function resetZoom() {
  for (const chart of charts) chart.zoomed = false;
  drawCharts(shown, true);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(shown, true));
