// What is asked of the server: requests with the secret, and orders, each of which asks once.

import {$} from "./elements.js";

export const STORED = "taut-dashboard-secret";  // of this tab and this origin; a cookie would go to every port of the host

// A link from `taut dashboard RUN --link` carries the secret behind the #, which browsers do not send.
const linked = new URLSearchParams(location.hash.slice(1)).get("secret");
if (linked) {
  sessionStorage.setItem(STORED, linked);
  history.replaceState(null, "", location.pathname);
}

// Above the figures: what came of the last order, and what is wrong with the run or the connection just now.
const notices = {order: "", run: "", connection: ""};

export function notice(what, text) {
  notices[what] = text;
  const told = Object.values(notices).filter(Boolean).join(" · ");
  if ($("notice").textContent !== told) $("notice").textContent = told;
  $("notice").hidden = !told;
}

// The secret goes along only where it is needed. Should this port be somebody else's one day, looking tells them nothing.
export const request = (path, options = {}, withSecret = true) => {
  const secret = withSecret ? sessionStorage.getItem(STORED) : null;
  const headers = {...options.headers, ...(secret ? {Authorization: `Bearer ${secret}`} : {})};
  return fetch(path, {...options, headers, cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer"});
};

export const problem = async (answer) => {
  const told = await answer.json().catch(() => ({error: `the server answered ${answer.status}`}));
  return [told.error, told.remedy].filter(Boolean).join("; ");
};

// Asks once. `fields`: the ids of the parts of the form that belong to this question.
export function ask(question, secretToo, fields = []) {
  $("question").textContent = question;
  for (const field of document.querySelectorAll("#ask [data-field]")) field.hidden = !fields.includes(field.id);
  $("expel").checked = false;
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

async function act(question, path, body = () => ({}), fields = []) {
  const known = sessionStorage.getItem(STORED) !== null;
  if (!await ask(question, !known, fields)) return;
  try {
    const answer = await request(path, {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body()),
    });
    if (answer.status === 401) sessionStorage.removeItem(STORED);
    notice("order", answer.ok ? (await answer.json()).said : await problem(answer));
  } catch {
    notice("order", "the server does not answer");
  }
}

export async function download(name) {
  if (sessionStorage.getItem(STORED) === null && !await ask(`To download ${name}:`, true)) return;
  const answer = await request(`/api/files/${name.split("/").map(encodeURIComponent).join("/")}`);
  if (answer.status === 401) sessionStorage.removeItem(STORED);
  if (!answer.ok) {
    notice("order", await problem(answer));
    return;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name.split("/").at(-1);
  link.click();
  URL.revokeObjectURL(link.href);
}

const WORKER_ORDERS = {
  drain: (rank) => act(`Worker ${rank} hands over what it has and leaves; the others go on.`,
    `/api/workers/${rank}/drain`, () => ({expel: $("expel").checked}), ["expelfield"]),
  pause: (rank) => act(`Worker ${rank} makes no step until you let it go on. It keeps its data: at the end the others wait for it.`,
    `/api/workers/${rank}/pause`),
  resume: (rank) => act(`Worker ${rank} goes on training.`, `/api/workers/${rank}/resume`),
};

const chosen = (id) => $(id).value === "" ? null : Number($(id).value);

// `run`: the run as it is shown now.
function tune(run) {
  $("rate").value = "";
  $("slack").value = "";
  $("ratenow").textContent = run?.rate ?? 1;
  $("slacknow").textContent = run?.slack ? `2^${Math.log2(run.slack)}` : "as the codec chose it";
  act("All workers change this at their next step. What is left empty stays as it is.", "/api/tune",
    () => ({rate: chosen("rate"), slack: chosen("slack")}), run?.tethered ? ["ratefield", "slackfield"] : ["ratefield"]);
}

export function takeOrders(shownRun) {
  for (let power = 0; power >= -16; power--) {
    const option = document.createElement("option");
    option.value = String(2 ** power);
    option.textContent = `2^${power}`;
    $("slack").append(option);
  }
  $("workers").addEventListener("click", (event) => {
    const {rank, order} = event.target.dataset ?? {};
    if (order) WORKER_ORDERS[order](rank);
  });
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    $("ask").close(event.submitter.value);
  });
  $("no").addEventListener("click", () => $("ask").close(""));
  $("unlock").addEventListener("click", () => ask("To steer the run from this tab:", true));
  $("end").addEventListener("click", () => act("The run ends in order: workers finish their step, and the model is saved.", "/api/drain"));
  $("checkpoint").addEventListener("click", () => act("A checkpoint is written now.", "/api/checkpoint"));
  $("tune").addEventListener("click", () => tune(shownRun()));
}
