import { hasToken, Problem, setToken } from './api.js';
import { ask } from './ask.js';
import { button, el, field, given, input, note, replace } from './dom.js';
import { switchZone, zone } from './format.js';
import { follow, live, run, stale, watch } from './live.js';
import * as audit from './pages/audit.js';
import * as dead from './pages/dead.js';
import * as find from './pages/find.js';
import * as inlets from './pages/inlets.js';
import * as instances from './pages/instances.js';
import * as jobs from './pages/jobs.js';
import * as message from './pages/message.js';
import * as messages from './pages/messages.js';
import * as overview from './pages/overview.js';
import * as owners from './pages/owners.js';
import * as queue from './pages/queue.js';
import * as recurring from './pages/recurring.js';
import * as sinks from './pages/sinks.js';
import { begin, finish, forget, issuers, leave as signOut } from './signin.js';

const pages = { '': overview, queue, messages, message, dead, recurring, jobs, sinks, inlets, owners, instances, audit, find };
const shownInNav = ['', 'owners', 'sinks', 'inlets', 'jobs', 'instances', 'audit'];
const main = document.getElementById('main');
let leave = new AbortController();

// address reads "#/page?name=value".
function address() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  return { name: path, query: Object.fromEntries(new URLSearchParams(query)) };
}

// link is the address of a page.
export function link(name, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  return `#/${name}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const { name, query } = address();
  const page = pages[name];
  const root = el('div.page');
  navigate(name);
  main.replaceChildren(root);
  if (!page) {
    document.title = 'delaybridge';
    root.append(el('h1', null, 'No such page'), el('p', null, el('a', { href: '#/' }, 'To the overview')));
    return;
  }
  const heading = el('h1', null, page.title(query));
  document.title = `${heading.textContent} – delaybridge`;
  root.append(heading);
  const content = el('div');
  root.append(content);
  scrollTo(0, 0);
  try {
    await page.show(content, query, signal);
  } catch (err) {
    if (!signal.aborted) failed(root, err);
  }
}

// go shows the page of the address to somebody who has followed a link: at its beginning.
function go() {
  main.focus({ preventScroll: true });
  show();
}

// failed says on the page why it cannot be shown.
function failed(root, err) {
  if (!(err instanceof Problem)) console.error(err);
  root.append(el('p.error', { role: 'alert' }, err.message), el('p', null, el('button', { type: 'button', onclick: go }, 'Try again')));
}

function navigate(current) {
  replace(document.getElementById('nav'), shownInNav.map((name) =>
    el('a', { href: `#/${name}`, 'aria-current': name === current ? 'page' : null }, pages[name].title({}))));
}

function tellLive() {
  const node = document.getElementById('live');
  const why = stale();
  if (!why) replace(node, el('span.badge.good', { title: `told by ${live.overview.instance}` }, 'live'));
  else if (live.failed || live.overview) replace(node, el('span.badge.bad', { title: why }, live.failed ? 'not connected' : 'stale'));
  else replace(node, el('span.badge.plain', { title: why }, 'connecting'));
}

// tellWho says as whom the bridge knows the reader, who may leave.
function tellWho() {
  const caller = live.overview?.caller;
  const limits = caller?.topics ? `, ${caller.topics.length === 1 ? 'one topic' : `${caller.topics.length} topics`} only` : '';
  replace(document.getElementById('who'),
    caller?.by_token ? [given(caller.name), el('small', null, ` ${caller.role === caller.name ? '' : `(${caller.role}${limits})`}`)] : '',
    hasToken() ? button('Sign out', signOut, { class: 'quiet' }) : '');
}

// announce tells those who hear the page that something has broken, or is mended. Figures
// are not told: they change each second.
let told = null;
function announce({ queues, sinks }) {
  const broken = [
    ...sinks.filter((s) => !s.up).map((s) => `Sink ${s.name} is down.`),
    ...queues.filter((q) => q.error).map((q) => `Queue ${q.name} cannot be read.`),
    ...queues.filter((q) => q.losses?.length).map((q) => `Redis has lost messages of queue ${q.name}.`),
    ...queues.filter((q) => q.paused?.length).map((q) => `Queue ${q.name} is paused${q.paused.some((p) => !p.topic) ? '' : ' in part'}.`),
  ].join(' ') || 'All sinks are up.';
  if (told !== null && broken !== told) document.getElementById('said').textContent = broken;
  told = broken;
}

async function login(problem) {
  const places = await issuers();
  const given = await ask(places.length ? 'Sign in' : 'This bridge asks for a token', [
    el('p', null, problem.message),
    places.map((issuer) => el('p', null, button(`Sign in with ${issuer.name}`, () => begin(issuer).catch((err) => note(err.message, true)), { class: 'primary' }))),
    field(places.length ? 'Or a token' : 'Token', input('token', { type: 'password', required: true, autofocus: !places.length }), 'It stays in this tab until the tab is closed.'),
  ], 'Use it');
  if (given) {
    forget();
    setToken(given.token);
    go();
  }
}

function theme() {
  const order = ['system', 'light', 'dark'];
  const node = document.getElementById('theme');
  const tell = () => { node.textContent = `Theme: ${document.documentElement.dataset.theme}`; };
  node.addEventListener('click', () => {
    const next = order[(order.indexOf(document.documentElement.dataset.theme) + 1) % order.length];
    document.documentElement.dataset.theme = next;
    localStorage.setItem('delaybridge.theme', next);
    tell();
  });
  tell();
}

function clocks() {
  const node = document.getElementById('zone');
  const tell = () => { node.textContent = `Time: ${zone()}`; };
  node.addEventListener('click', () => {
    switchZone();
    tell();
    show();
  });
  tell();
}

function search() {
  const form = document.getElementById('find');
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const id = form.elements.id.value.trim();
    if (id) location.hash = link('find', { id });
  });
  addEventListener('keydown', (event) => {
    const typing = event.target.closest('input, select, textarea, dialog');
    if (event.key === '/' && !typing) {
      event.preventDefault();
      form.elements.id.focus();
    }
  });
}

// The part behind the # is the page, so the link to the content is followed here.
function skip() {
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
}

theme();
clocks();
search();
skip();
addEventListener('hashchange', go);
watch(tellLive);
watch(tellWho);
follow(announce, new AbortController().signal);
await finish().catch((err) => note(err.message, true));
show();
run(login);
