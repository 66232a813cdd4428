const handlers = ['onclick', 'onsubmit'];

// el makes an element: properties are its attributes, but for handlers; false, null and
// undefined are left out. Text is never read as HTML.
export function el(tag, properties, ...children) {
  const [name, ...classes] = tag.split('.');
  const node = document.createElement(name || 'div');
  if (classes.length) node.className = classes.join(' ');
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (handlers.includes(key)) node[key] = value;
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// hidden are characters that show nothing, or change how others are shown: controls, marks of
// the direction of text, spaces of no width.
const hidden = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// visible is a text that comes from elsewhere, with what it hides written out.
export function visible(text) {
  return String(text).replace(hidden, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

// given shows a text that comes from elsewhere, such as an id: what it hides is written out,
// and its direction changes nothing around it.
export function given(text) {
  return text === undefined || text === null || text === '' ? '' : el('bdi', null, visible(text));
}

// replace shows other children, and changes only what differs: the focus, a selection
// and what was unfolded stay while figures change. Where what had the focus is gone, the
// content has it, so that the next Tab is not at the beginning of the page.
export function replace(node, ...children) {
  const hadFocus = node.contains(document.activeElement);
  const next = node.cloneNode(false);
  next.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  changeChildren(node, next);
  if (hadFocus) keepFocus();
}

// keepFocus gives the focus to the content where nothing has it.
export function keepFocus() {
  if (document.activeElement === document.body) document.getElementById('main').focus({ preventScroll: true });
}

function changeChildren(node, next) {
  const old = [...node.childNodes];
  const wanted = [...next.childNodes];
  wanted.forEach((child, i) => (old[i] ? liken(old[i], child) : node.append(child)));
  old.slice(wanted.length).forEach((child) => child.remove());
}

// liken makes one node like another, which does what the other would do.
function liken(node, next) {
  if (node.nodeType !== next.nodeType || node.nodeName !== next.nodeName) {
    node.replaceWith(next);
  } else if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== next.data) node.data = next.data;
  } else {
    for (const handler of handlers) node[handler] = next[handler];
    for (const { name } of [...node.attributes]) if (name !== 'open' && !next.hasAttribute(name)) node.removeAttribute(name);
    for (const { name, value } of next.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    changeChildren(node, next);
  }
}

// table makes a table of rows; a column is {name, of(row), number}.
export function table(caption, columns, rows, none) {
  if (!rows.length) return el('p.none', null, none || 'None.');
  return scroll(caption,
    el('thead', null, el('tr', null, columns.map((c) => el(c.number ? 'th.number' : 'th', { scope: 'col' }, c.name)))),
    el('tbody', null, rows.map((row) => el('tr', null, columns.map((c) =>
      el(c.number ? 'td.number' : 'td', { 'data-name': c.name }, c.of(row)))))));
}

// scroll makes a table of its parts, which can be scrolled by keys, too, where it is wide.
export function scroll(caption, ...parts) {
  return el('div.scroll', { tabindex: 0, role: 'region', 'aria-label': caption }, el('table', null, el('caption', null, caption), parts));
}

// facts makes a list of names and values; a value of null, undefined or '' is left out.
export function facts(pairs) {
  return el('dl.facts', null, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => el('div', null, el('dt', null, name), el('dd', null, value))));
}

export function button(text, onclick, properties) {
  return el('button', { type: 'button', onclick, ...properties }, text);
}

// change makes a button for what only an operator may do: others do not see it.
export function change(text, onclick, properties) {
  return el('button.changes', { type: 'button', onclick, ...properties }, text);
}

// field makes a label with its control.
export function field(name, control, hint) {
  return el('label.field', null, el('span', null, name), control, hint && el('small', null, hint));
}

export function input(name, properties) {
  return el('input', { name, autocomplete: 'off', spellcheck: 'false', ...properties });
}

export function select(name, options, chosen) {
  return el('select', { name }, options.map(([value, text]) => el('option', { value, selected: value === chosen }, text)));
}

// state shows a state in words and a colour.
export function badge(kind, text) {
  return el(`span.badge.${kind}`, null, text);
}

// note tells what has happened, for some seconds; an error until it is closed.
export function note(text, failed) {
  const shown = el(failed ? 'p.note.bad' : 'p.note', { role: failed ? 'alert' : null }, text, ' ',
    button('Close', () => shown.remove(), { class: 'quiet' }));
  document.getElementById('notes').append(shown);
  if (!failed) setTimeout(() => shown.remove(), 8000);
}
