// How late updates are: the share of them in each bucket of steps, of the last minute and of the whole run.

import {Chart, style} from "./charts.js";
import {$} from "./elements.js";
import {number} from "./format.js";

const shares = (counts, length) => {
  const whole = counts.reduce((sum, count) => sum + count, 0);
  return Array.from({length}, (_, at) => whole ? (counts[at] ?? 0) / whole : null);
};
const bars = (width, align) => uPlot.paths.bars({size: [width, 60], align});

const KIND = {
  alone: true, bars: true, format: (value) => value === null ? "–" : `${number(100 * value, 1)}%`,
  tick: (at) => at in KIND.bounds ? `up to ${KIND.bounds[at]} steps` : `more than ${KIND.bounds.at(-1)} steps`,
  label: (at) => KIND.bounds[at] ?? `>${KIND.bounds.at(-1)}`,
  bounds: [],
  xlabel: () => "steps late",
  told: ([{length, whole}]) => `in the whole run: ${shares(whole, length).map((share, at) => `${KIND.tick(at)} ${KIND.format(share)}`).join(", ")}`,
  x: ([{length}]) => Array.from({length}, (_, at) => at),
  lines: ([{length, minute, whole}]) => [
    {label: "whole run", values: shares(whole, length), stroke: style("--quiet"), fill: `${style("--quiet")}66`, width: 0, paths: bars(0.9)},
    {label: "last minute", values: shares(minute, length), stroke: style("--blue"), fill: style("--blue"), width: 0, paths: bars(0.5)},
  ],
};
const chart = new Chart("staleness", KIND);
let shown = null;

export function drawStaleness(given = shown, anew = false) {
  shown = given;
  const rank = $("staleof").value === "all" ? null : Number($("staleof").value);
  const line = given?.lines.find((one) => one[0] === rank);
  $("staleness").closest("figure").hidden = !given?.lines.length;
  if (!line) return;
  KIND.bounds = given.bounds;
  const length = Math.max(4, ...given.lines.map((one) => one[2].length));
  chart.draw([{length, minute: line[1], whole: line[2]}], anew || chart.length !== length);
  chart.length = length;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawStaleness(shown, true));
