// What the scripts log, and validation: a chart for each name, drawn as the curves of the loss are, and the latest images.

import {COLORS, Chart} from "./charts.js";
import {$, make} from "./elements.js";
import {short, time} from "./format.js";
import {request} from "./orders.js";

const EVERY_MS = 5000;
const charts = new Map(), pictures = new Map();

const KIND = {
  format: short, alone: true, log: true, tick: time,
  x: (lines) => joined(lines)[0],
  lines: (lines) => {
    const values = joined(lines).slice(1);
    return lines.map(([, rank], at) => ({
      label: `worker ${rank}`, values: [...values[at]].map((value) => value ?? null), width: 1.5, smooth: true,
      stroke: COLORS[rank % COLORS.length],
    }));
  },
};

// Times of their own on one axis; of two points at the same moment the later one counts.
const joined = (lines) => uPlot.join(lines.map(([, , points]) => {
  const byTime = new Map(points.map(([at, , value]) => [at, value]));
  return [[...byTime.keys()].sort((a, b) => a - b), [...byTime.entries()].sort((a, b) => a[0] - b[0]).map((entry) => entry[1])];
}));

function chartOf(name) {
  if (!charts.has(name)) {
    const figure = make("figure"), place = make("div");
    place.id = `metric-${charts.size}`;
    place.setAttribute("role", "img");
    place.dataset.title = `${name} of each worker`;
    figure.append(make("figcaption", name), place);
    $("metrics").append(figure);
    charts.set(name, new Chart(place.id, KIND));
  }
  return charts.get(name);
}

async function showImage([row, name, rank, step], secret) {
  const key = `${name} ${rank}`, known = pictures.get(key);
  if (known?.row === row) return;
  const answer = await request(`/api/images/${row}`, {}, secret);
  if (!answer.ok) return;
  const reader = new FileReader();
  reader.onload = () => {
    const figure = known?.figure ?? $("images").appendChild(make("figure"));
    const picture = make("img");
    picture.src = reader.result;
    picture.alt = `${name}, logged by worker ${rank} at step ${step}`;
    figure.replaceChildren(make("figcaption", `${name}, worker ${rank}, step ${step}`), picture);
    pictures.set(key, {row, figure});
  };
  reader.readAsDataURL(await answer.blob());
}

// `secretNeeded`: whether looking needs the secret here; `still`: whether the page stands still.
export async function followMetrics(secretNeeded, still) {
  for (let last = -1; ;) {
    try {
      const answer = still() ? null : await request("/api/metrics", {}, secretNeeded());
      if (answer?.ok) {
        const found = await answer.json();
        if (found.last !== last) {
          const names = [...new Set(found.lines.map((line) => line[0]))];
          for (const name of names) chartOf(name).draw(found.lines.filter((line) => line[0] === name));
        }
        last = found.last;
        for (const image of found.images) await showImage(image, secretNeeded());
      }
    } catch { /* the stream says that the server is away */ }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}
