import { address, forgetKey, json, key } from "./api.js";
import { announce, button, byID } from "./dom.js";
import { Chat } from "./chat.js";
import { Explorer } from "./explorer.js";
import { Plans } from "./plans.js";
import { Start } from "./start.js";
import * as store from "./store.js";

// app is shared by the views: the served model's name, the sent requests, and functions that connect views. explore
// opens the explorer. recorded sets the recording that the explorer shows when it is opened. answered is a promise of
// whether the chat shows an answer, latest a promise of the last answer's request.
const app = {
  model,
  requests: [],
  explore,
  recorded: (request, found) => views.explorer.take(request, found),
  answered: () => views.chat.ready.then(() => views.chat.answered() >= 0),
  latest: () => views.chat.requestAt(views.chat.answered()),
};

let served = null; // promise of the model's name

const views = { start: new Start(app), chat: new Chat(app), explorer: new Explorer(app), plans: new Plans(app) };
let shown = null;

// explore opens the explorer for a request. found is {recording, position, passage}: a recording of the request, if
// there is one, and the part to show first. at is an offset in the answer's text, whose token is shown first, or -1.
function explore(request, found, at = -1) {
  views.explorer.take(request, found, at);
  location.hash = "explorer";
}

function show(moved) {
  const name = location.hash.slice(1);
  if (name === "main") return; // a link to the main content
  const next = views[name] ?? views.start;
  if (next === shown) return;
  shown?.hide();
  shown = next;
  document.title = `${next.title} \u00b7 Sparrow`;
  for (const link of document.querySelectorAll("nav a")) {
    if (views[link.dataset.view] === next) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.body.dataset.view = next.name;
  byID("main").replaceChildren(next.node);
  if (moved) {
    byID("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  next.show();
}

const themes = ["auto", "light", "dark"];

function theme(name) {
  if (!themes.includes(name)) name = "auto";
  document.documentElement.dataset.theme = name;
  byID("theme").textContent = `Theme: ${name}`;
  localStorage.setItem("sparrow-theme", name);
  dispatchEvent(new Event("themechange"));
}

byID("theme").addEventListener("click", () => {
  theme(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));

// model returns a promise of the served model's name, which requests need. After an error, the next call tries again.
function model() {
  served ??= ask().catch((err) => {
    served = null;
    trouble(`The server did not name its model: ${err.message}`, err.status === 401 ? "Enter key" : "Try again");
    throw err;
  });
  return served;
}

async function ask() {
  const { data } = await json("v1/models");
  const [first] = data;
  byID("model").textContent = first.id;
  byID("model").title = `${first.max_model_len} tokens of context, at ${address("")}`;
  byID("trouble").hidden = true;
  return first.id;
}

// trouble shows an error and a button for another attempt.
function trouble(text, remedy) {
  const again = async () => {
    await model();
    shown.show();
  };
  byID("trouble").hidden = false;
  byID("trouble").replaceChildren(
    text,
    " ",
    button(remedy, () => again().catch(() => {})),
  );
}

byID("forget").addEventListener("click", () => {
  forgetKey();
  served = null;
  trouble("The key was removed.", "Enter key");
  announce("The key was removed");
});
const keyKnown = () => (byID("forget").hidden = key() === "");
addEventListener("keychange", keyKnown);

async function begin() {
  theme(localStorage.getItem("sparrow-theme"));
  keyKnown();
  model().catch(() => {}); // the bar at the top shows the error
  if (!location.hash) {
    const known = await store.list();
    history.replaceState(null, "", known.length ? "#chat" : "#start");
  }
  show(false);
  addEventListener("hashchange", () => show(true));
}

begin();
