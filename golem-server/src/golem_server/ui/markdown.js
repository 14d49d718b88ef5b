/**
 * Markdown as nodes of the document.
 *
 * A model's text never becomes HTML: every node is made by name and every text is a text node, so
 * nothing in an answer can be an element, an attribute or a script. Links are those of the web and
 * of mail; pictures are shown as links, for the page loads nothing from elsewhere.
 *
 * Read: headings, paragraphs, fenced code, lists in lists, quotes, tables, rules, emphasis, code,
 * strikethrough, links. Not read: HTML, footnotes, reference links, indented code.
 */

const DEEPEST = 16; // lists and quotes within each other
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*)|)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** An element with properties and children; a text among them is a text node. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Shows `text` in `place`. What was shown there before and is still the same stays the same node,
 * so that a growing answer costs what is new, and a button in it keeps the focus.
 */
export function show(place, text) {
  const blocks = split(text.split("\n"), 0);
  const old = place.shown ?? [];
  let same = 0;
  while (same < old.length && same < blocks.length && old[same] === blocks[same].source) same++;
  while (place.childNodes.length > same) place.lastChild.remove();
  for (const block of blocks.slice(same)) place.append(block.build());
  place.shown = blocks.map((block) => block.source);
}

/** The blocks of some lines: their source, and what builds their node. */
function split(lines, depth) {
  const blocks = [];
  let at = 0;
  const take = (end, build) => {
    blocks.push({ source: lines.slice(at, end).join("\n"), build });
    at = end;
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) {
      at++;
    } else if (fence) {
      let end = at + 1;
      while (end < lines.length && !closes(lines[end], fence[1])) end++;
      const code = lines.slice(at + 1, end).join("\n");
      take(Math.min(end + 1, lines.length), () => codeBlock(code, fence[2].trim()));
    } else if (heading) {
      take(at + 1, () => inlined(make(`h${Math.min(heading[1].length + 2, 6)}`), heading[2]));
    } else if (RULE.test(line)) {
      take(at + 1, () => make("hr"));
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      let end = at;
      while (end < lines.length && QUOTE.test(lines[end])) end++;
      const inner = lines.slice(at, end).map((one) => one.replace(QUOTE, ""));
      take(end, () => filled(make("blockquote"), inner, depth + 1));
    } else if (depth < DEEPEST && ITEM.test(line)) {
      const { end, build } = list(lines, at, depth);
      take(end, build);
    } else if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "")) {
      let end = at + 2;
      while (end < lines.length && lines[end].trim() && lines[end].includes("|")) end++;
      const rows = lines.slice(at, end);
      take(end, () => table(rows));
    } else {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() && !begins(lines[end], depth)) end++;
      const text = lines.slice(at, end).join("\n");
      take(end, () => inlined(make("p"), text));
    }
  }
  return blocks;
}

function closes(line, fence) {
  const text = line.trim();
  return text.length >= fence.length && text === fence[0].repeat(text.length);
}

/** Whether a line ends a paragraph by beginning something else. */
function begins(line, depth) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  return depth < DEEPEST && (QUOTE.test(line) || (ITEM.test(line) && !/^\s*\d{2,}/.test(line)));
}

function filled(element, lines, depth) {
  for (const block of split(lines, depth)) element.append(block.build());
  return element;
}

function list(lines, start, depth) {
  const [, space, mark] = ITEM.exec(lines[start]);
  const ordered = /\d/.test(mark);
  const items = [];
  let at = start;
  let loose = false;
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length > space.length + 1 || /\d/.test(found[2]) !== ordered) break;
    if (found[1].length < space.length || RULE.test(lines[at])) break;
    const inner = [found[3] ?? ""];
    const width = found[1].length + found[2].length + 1;
    at++;
    while (at < lines.length) {
      const line = lines[at];
      const indent = line.length - line.trimStart().length;
      if (!line.trim()) {
        inner.push("");
      } else if (indent > space.length + 1) {
        inner.push(line.slice(Math.min(indent, width)));
      } else if (inner[inner.length - 1].trim() && !begins(line, depth) && !ITEM.test(line)) {
        inner.push(line.trim()); // a paragraph that goes on without its indent
      } else {
        break;
      }
      at++;
    }
    while (inner.length > 1 && !inner[inner.length - 1].trim()) inner.pop();
    loose ||= inner.some((line) => !line.trim()) && inner.length > 1;
    items.push(inner);
  }
  const build = () => {
    const element = make(ordered ? "ol" : "ul");
    if (ordered) element.start = Number.parseInt(mark, 10);
    for (const inner of items) {
      const item = make("li");
      const task = /^\[([ xX])\]\s+/.exec(inner[0]);
      if (task) {
        item.append(make("span", { className: "task" }, task[1] === " " ? "☐ " : "☑ "));
        inner[0] = inner[0].slice(task[0].length);
      }
      filled(item, inner, depth + 1);
      // A tight list has no paragraphs in it.
      if (!loose) {
        for (const child of [...item.children]) {
          if (child.tagName === "P") child.replaceWith(...child.childNodes);
        }
      }
      element.append(item);
    }
    return element;
  };
  return { end: at, build };
}

function table(rows) {
  const cells = (row) => {
    const inner = row.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
    return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  };
  const sides = cells(rows[1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left",
  );
  const row = (kind, line) => {
    const found = cells(line);
    return make(
      "tr",
      {},
      ...sides.map((side, i) => inlined(make(kind, { className: side }), found[i] ?? "")),
    );
  };
  const body = rows.slice(2).map((line) => row("td", line));
  const whole = make("table", {}, make("thead", {}, row("th", rows[0])), make("tbody", {}, ...body));
  return make("div", { className: "wide", tabIndex: 0 }, whole);
}

function codeBlock(code, language) {
  const button = make("button", { type: "button", className: "quiet copy" }, "Copy");
  button.addEventListener("click", () => copy(code, button));
  const name = make("span", { className: "language" }, language.split(/\s/)[0].slice(0, 30));
  return make(
    "figure",
    { className: "code" },
    make("figcaption", {}, name, button),
    make("pre", { tabIndex: 0 }, make("code", {}, code)),
  );
}

/** Puts a text on the clipboard, and says on the button whether that went well. */
export async function copy(text, button) {
  const before = button.textContent;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    // Without TLS there is no clipboard but the old one.
    const field = make("textarea", { value: text, className: "hidden" });
    document.body.append(field);
    field.select();
    done = document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = before), 1500);
}

/** Adds what stands in a line to an element. */
function inlined(element, text) {
  const missing = new Set(); // marks that were looked for and do not come again
  let plain = "";
  let at = 0;
  const rest = () => {
    if (plain) element.append(plain);
    plain = "";
  };
  const wrapped = (tag, mark) => {
    const key = `${tag}${mark}`;
    if (missing.has(key)) return false;
    let end = text.indexOf(mark, at + mark.length);
    // The end of emphasis stands behind a word, its beginning before one.
    while (end > 0 && (/\s/.test(text[end - 1]) || (mark === "*" && text[end + 1] === "*"))) {
      end = text.indexOf(mark, end + (text[end + 1] === "*" && mark === "*" ? 2 : 1));
    }
    if (end < 0) {
      missing.add(key);
      return false;
    }
    if (end === at + mark.length || /\s/.test(text[at + mark.length])) return false;
    if (mark[0] === "_" && (word(text[at - 1]) || word(text[end + mark.length]))) return false;
    rest();
    element.append(inlined(make(tag), text.slice(at + mark.length, end)));
    at = end + mark.length;
    return true;
  };
  while (at < text.length) {
    const one = text[at];
    if (one === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (one === "`") {
      const ticks = /^`+/.exec(text.slice(at, at + 64))[0];
      const end = missing.has(ticks) ? -1 : text.indexOf(ticks, at + ticks.length);
      if (end < 0) {
        missing.add(ticks);
        plain += ticks;
        at += ticks.length;
      } else {
        rest();
        const code = text.slice(at + ticks.length, end);
        element.append(make("code", {}, /^ .*\S.* $/s.test(code) ? code.slice(1, -1) : code));
        at = end + ticks.length;
      }
    } else if (text.startsWith("**", at) && wrapped("strong", "**")) {
      continue;
    } else if (text.startsWith("__", at) && wrapped("strong", "__")) {
      continue;
    } else if (text.startsWith("~~", at) && wrapped("del", "~~")) {
      continue;
    } else if ((one === "*" || one === "_") && wrapped("em", one)) {
      continue;
    } else if (one === "[" || (one === "!" && text[at + 1] === "[")) {
      const rule = /!?\[([^\]]{0,500})\]\(\s*<?([^)\s>]{1,2000})>?(?:\s+"[^"]{0,300}")?\s*\)/y;
      rule.lastIndex = at;
      const found = rule.exec(text);
      if (found) {
        rest();
        element.append(link(found[2], found[1] || found[2]));
        at += found[0].length;
      } else {
        plain += one;
        at++;
      }
    } else if (one === "h" && !word(text[at - 1]) && /^https?:\/\//.test(text.slice(at, at + 8))) {
      const address = /^[^\s<>"'`]*[^\s<>"'`.,;:!?)*\]]/.exec(text.slice(at, at + 2000))[0];
      rest();
      element.append(link(address, address));
      at += address.length;
    } else if (one === "\n") {
      rest();
      element.append(make("br"));
      at++;
    } else {
      plain += one;
      at++;
    }
  }
  rest();
  return element;
}

function word(character) {
  return character !== undefined && /[\p{L}\p{N}]/u.test(character);
}

function link(address, text) {
  let scheme = null;
  try {
    scheme = new URL(address).protocol;
  } catch {
    // No whole address: it would lead into this server.
  }
  if (!["http:", "https:", "mailto:"].includes(scheme)) return make("span", {}, text);
  return make(
    "a",
    { href: address, target: "_blank", rel: "noopener noreferrer nofollow", title: address },
    text,
  );
}
