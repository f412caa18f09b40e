import { address, json } from "./api.js";
import { byID } from "./dom.js";
import { Chat } from "./chat.js";
import { Explorer } from "./explorer.js";
import { Plans } from "./plans.js";
import { Start } from "./start.js";
import * as store from "./store.js";

// app is what views share: a promise of the served model's name, the requests that were sent, and the ways from one
// view to another.
const app = { served: null, requests: [], go, explore };

const views = { start: new Start(app), chat: new Chat(app), explorer: new Explorer(app), plans: new Plans(app) };
let shown = null;

function go(name) {
  location.hash = name;
}

// explore shows what the model looks at for a conversation.
function explore(question) {
  views.explorer.take(question);
  go("explorer");
}

function show(moved) {
  const name = location.hash.slice(1);
  if (name === "main") return; // the link that skips the header
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

// ask gives the name of the served model; requests wait for it.
async function ask() {
  const { data } = await json("v1/models");
  const [served] = data;
  byID("model").textContent = served.id;
  byID("model").title = `${served.max_model_len} tokens of context, at ${address("")}`;
  return served.id;
}

async function begin() {
  theme(localStorage.getItem("sparrow-theme"));
  app.served = ask();
  app.served.catch((err) => {
    byID("trouble").hidden = false;
    byID("trouble").textContent = `The server cannot be asked for its model: ${err.message}`;
  });
  if (!location.hash) {
    const known = await store.list();
    history.replaceState(null, "", known.length ? "#chat" : "#start");
  }
  show(false);
  addEventListener("hashchange", () => show(true));
}

begin();
