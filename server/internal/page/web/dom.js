// All nodes are created with el, which converts strings to text nodes, so that no text of a model or server is
// interpreted as markup.

// el creates an element. Names in props are "class", "on..." for listeners, properties of the element, or attributes.
// The values null, undefined and false are ignored.
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "data") Object.assign(node.dataset, value);
    else if (!name.includes("-") && name in node && name !== "list" && name !== "form") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byID = (id) => document.getElementById(id);

// button returns a button of type button, which does not submit a form.
export function button(text, onclick, props) {
  return el("button", { type: "button", onclick, ...props }, text);
}

// field returns a control with a label above it.
let fields = 0;
export function field(name, control, hint) {
  control.id ||= `field-${++fields}`;
  const parts = [el("label", { htmlFor: control.id }, name), control];
  if (hint) {
    const id = control.id + "-hint";
    control.setAttribute("aria-describedby", id);
    parts.push(el("small", { id, class: "muted" }, hint));
  }
  return el("div", { class: "field" }, parts);
}

// sends adds a listener that calls act when Enter is pressed in a text field. Shift+Enter inserts a line break.
export function sends(control, act) {
  control.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    act();
  });
}

export function choice(options, value, onchange) {
  const node = el(
    "select",
    { onchange: () => onchange(node.value) },
    options.map(([key, text]) => el("option", { value: key }, text)),
  );
  node.value = value;
  return node;
}

// announce makes screen readers read a text. It is not used for streamed text, which is too frequent.
export function announce(text) {
  byID("status").textContent = text;
}

export const count = (n) => n.toLocaleString("en-US");

export function plural(n, one, many) {
  return `${count(n)} ${n === 1 ? one : (many ?? one + "s")}`;
}

export function milliseconds(ms) {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  return ms < 10000 ? `${count(Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function percent(part, whole) {
  if (!whole) return "0 %";
  const p = (100 * part) / whole;
  return `${p >= 10 || p === 0 ? Math.round(p) : p.toFixed(1)} %`;
}

// copy copies text to the clipboard. Without TLS, except on localhost, browsers do not allow this; then the text in
// from is selected instead.
export async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(from);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    announce("Selected; copy it with your keyboard");
    return false;
  }
}
