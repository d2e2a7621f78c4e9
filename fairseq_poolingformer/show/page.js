"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const passages = [...document.querySelectorAll(".passage")];
const texts = passages.map((passage) => passage.textContent);
const kinds = Object.keys(data.views);
const tabs = [...document.querySelectorAll("[role=tab]")];
const sentences = [...document.querySelectorAll(".sentences button")];
// what is shown: layer 0 is the mean of all, layer n + 1 the n-th of the view; piece and word are -1 where none is chosen
const state = { view: kinds[0], layer: 0, row: 0, piece: -1, word: -1 };
const LEAST = 0.005; // shares below this are neither shaded nor listed
let shares = [];

function percent(share) {
  return share < 0.0995 ? `${(100 * share).toFixed(1)}\u00a0%` : `${Math.round(100 * share)}\u00a0%`;
}

function button(text, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", action);
  return made;
}

// the flat list of column, thousandths, … as shares by column
function unpacked(flat, size) {
  const row = new Array(size).fill(0);
  for (let place = 0; place < flat.length; place += 2) row[flat[place]] = flat[place + 1] / 1000;
  return row;
}

function choose(changes) {
  Object.assign(state, changes);
  const view = data.views[state.view];
  const last = view.rows === "summary" ? sentences.length : data.passages;
  state.layer = Math.min(state.layer, view.layers.length);
  state.row = Math.max(0, Math.min(state.row, last - 1));
  if (view.rows === "summary" || state.word >= data.words.length) state.word = -1;
  if (view.rows === "document" || !data.pieces || data.pieces.rows[state.piece] !== state.row) state.piece = -1;
  if (state.word >= 0) state.row = data.words[state.word].passage;
  draw();
  const hash = "#" + Object.entries(state).map(([name, value]) => `${name}=${value}`).join("&");
  try { history.replaceState(null, "", hash); } catch { /* a frame without an address */ }
}

function current() {
  const view = data.views[state.view];
  if (state.word >= 0) {
    const row = new Array(data.passages + 1).fill(0);
    for (const [token, share] of sharesOfWord()) row[data.words[state.word].tokens[token][0]] += share;
    return row;
  }
  const flat = state.piece >= 0 ? data.pieces.weights[state.piece] : view.weights[state.layer][state.row] ?? [];
  return unpacked(flat, data.passages + 1);
}

// the tokens that the chosen word looks at, and their shares; the word's own tokens are always among them
function sharesOfWord() {
  const word = data.words[state.word];
  const flat = word.levels[state.view][state.layer];
  const found = new Map(word.own.map((token) => [token, 0]));
  for (let place = 0; place < flat.length; place += 2) found.set(flat[place], flat[place + 1] / 1000);
  return [...found].sort(([a], [b]) => a - b);
}

function draw() {
  const view = data.views[state.view];
  document.body.dataset.view = state.view;
  tabs.forEach((tab) => {
    const own = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", own);
    tab.tabIndex = own ? 0 : -1;
  });
  element("explained").textContent = view.text;
  const layers = element("layer");
  layers.replaceChildren(...["mean of all", ...view.layers].map((name, place) => new Option(name, place)));
  layers.value = state.layer;
  layers.disabled = state.piece >= 0;
  element("word-label").hidden = !data.words.length || view.rows === "summary";
  element("word").value = state.word;
  sentences.forEach((sentence, row) =>
    sentence.setAttribute("aria-pressed", view.rows === "summary" && row === state.row));
  shares = current();
  const most = Math.max(...shares.slice(0, -1), 0.001);
  passages.forEach((passage, place) => {
    passage.textContent = texts[place];
    const shaded = state.word < 0 && shares[place] >= LEAST;
    passage.style.setProperty("--w", shaded ? Math.sqrt(shares[place] / most).toFixed(3) : 0);
    if (state.word < 0 && shares[place] >= 0.01) passage.dataset.share = percent(shares[place]);
    else delete passage.dataset.share;
    const chosen = view.rows === "document" && place === state.row;
    passage.classList.toggle("chosen", chosen && state.word < 0);
    passage.tabIndex = view.rows === "document" && place === state.row ? 0 : -1;
    passage.toggleAttribute("aria-current", chosen);
  });
  if (state.word >= 0) drawWord(data.words[state.word]);
  drawPieces(view);
  drawTop();
  drawMap(most);
}

// marks the tokens that a word looks at, and the word itself
function drawWord(word) {
  const found = sharesOfWord();
  const most = Math.max(...found.map(([, share]) => share), 0.001);
  const marks = new Map();
  for (const [token, share] of found) {
    const [passage, start, end] = word.tokens[token];
    if (!marks.has(passage)) marks.set(passage, []);
    marks.get(passage).push([start, end, share, word.own.includes(token)]);
  }
  for (const [passage, tokens] of marks) {
    const parts = [];
    let end = 0;
    for (const [start, stop, share, own] of tokens) {
      if (start < end || stop <= start) continue; // of tokens that share a character, the first one
      const mark = document.createElement("mark");
      mark.textContent = texts[passage].slice(start, stop);
      mark.style.setProperty("--w", Math.sqrt(share / most).toFixed(3));
      mark.classList.toggle("own", own);
      mark.title = percent(share);
      parts.push(texts[passage].slice(end, start), mark);
      end = stop;
    }
    passages[passage].replaceChildren(...parts, texts[passage].slice(end));
  }
}

function drawPieces(view) {
  const box = element("pieces");
  const own = view.rows === "summary" && data.pieces
    ? data.pieces.texts.map((text, place) => [text, place]).filter(([, place]) => data.pieces.rows[place] === state.row)
    : [];
  box.hidden = !own.length;
  box.replaceChildren(...own.map(([text, place]) => {
    const made = button(text || "·", () => {
      choose({ piece: state.piece === place ? -1 : place });
      [...box.children].find((child) => child.dataset.piece === String(place))?.focus();
    });
    made.dataset.piece = place;
    made.setAttribute("aria-pressed", state.piece === place);
    return made;
  }));
}

function drawTop() {
  const order = [...shares.keys()].slice(0, -1).filter((place) => shares[place] >= LEAST);
  order.sort((a, b) => shares[b] - shares[a]);
  element("top").replaceChildren(...order.slice(0, 8).map((place) => {
    const item = document.createElement("li");
    const made = button("", () => show(place));
    const share = document.createElement("b");
    const text = document.createElement("span");
    share.textContent = percent(shares[place]);
    text.textContent = texts[place];
    made.append(share, text);
    item.append(made);
    return item;
  }));
  const special = shares.at(-1);
  const seen = shares.reduce((sum, share) => sum + share, 0);
  const who = state.piece >= 0 ? "This token"
    : state.word >= 0 ? `“${data.words[state.word].text}”`
      : `Sentence ${state.row + 1}`;
  element("status").textContent = !seen ? `${who} was not read by the model.`
    : `${who} looks at ${order.length} of ${data.passages} sentences with 0.5\u00a0% or more each`
      + (special >= 0.0005 ? `, and with ${percent(special)} at the tokens <s> and </s>.` : ".");
}

function drawMap(most) {
  const map = element("map");
  const width = (map.width = map.clientWidth * devicePixelRatio);
  const height = (map.height = 26 * devicePixelRatio);
  const pen = map.getContext("2d");
  const style = getComputedStyle(document.body);
  const total = texts.reduce((sum, text) => sum + text.length, 0);
  let x = 0;
  texts.forEach((text, place) => {
    const size = (width * text.length) / total;
    const part = Math.sqrt(shares[place] / most);
    pen.fillStyle = `rgba(${style.getPropertyValue("--hue")}, ${part ? 0.25 + 0.75 * part : 0})`;
    pen.fillRect(x, height * (1 - part), Math.max(size, devicePixelRatio), height * part);
    if (data.views[state.view].rows === "document" && place === state.row) {
      pen.fillStyle = style.getPropertyValue("--mark");
      pen.fillRect(x, 0, Math.max(2 * devicePixelRatio, 2), height);
    }
    x += size;
  });
}

function show(place) {
  const smooth = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  passages[place].scrollIntoView({ block: "center", behavior: smooth ? "smooth" : "auto" });
}

function move(step) {
  const rows = data.views[state.view].rows;
  choose({ row: state.row + step, piece: -1, word: -1 });
  if (rows === "summary") sentences[state.row].focus();
  else passages[state.row].focus({ preventScroll: true }), show(state.row);
}

tabs.forEach((tab) => tab.addEventListener("click", () => choose({ view: tab.dataset.view, layer: 0, row: 0, word: -1 })));
sentences.forEach((sentence, row) => sentence.addEventListener("click", () => choose({ view: "cross", row, piece: -1 })));
element("layer").addEventListener("change", (event) => choose({ layer: Number(event.target.value) }));
element("word").append(new Option("none: whole sentences", -1), ...data.words.map((word, place) =>
  new Option(`${word.text} (sentence ${word.passage + 1})`, place)));
element("word").addEventListener("change", (event) => {
  choose({ word: Number(event.target.value) });
  show(state.row);
});
element("document").addEventListener("click", (event) => {
  const row = passages.indexOf(event.target.closest(".passage"));
  if (row >= 0 && data.views[state.view].rows === "document") choose({ row, word: -1 });
});
element("map").addEventListener("click", (event) => {
  const total = texts.reduce((sum, text) => sum + text.length, 0);
  let rest = (event.offsetX / event.target.clientWidth) * total;
  show(Math.max(0, texts.findIndex((text) => (rest -= text.length) < 0)));
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const onTab = event.target.matches("[role=tab]");
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (onTab && step) {
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    next.click();
    next.focus();
  } else if (step && event.target.matches(".passage, .sentences button")) move(step);
  else if (kinds["123".indexOf(event.key)]) choose({ view: kinds["123".indexOf(event.key)], layer: 0, row: 0, word: -1 });
  else if (event.key.toLowerCase() === "l") choose({ layer: (state.layer + 1) % (data.views[state.view].layers.length + 1) });
  else return;
  event.preventDefault();
});

function fromAddress() {
  const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const numbers = Object.fromEntries(["layer", "row", "piece", "word"].filter((name) => name in wanted)
    .map((name) => [name, Number(wanted[name]) || 0]));
  choose({ ...(kinds.includes(wanted.view) ? { view: wanted.view } : {}), ...numbers });
  if ("row" in wanted && data.views[state.view].rows === "document") show(state.row);
}
addEventListener("resize", draw);
addEventListener("hashchange", fromAddress);
fromAddress();
