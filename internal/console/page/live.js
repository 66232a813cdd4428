// What the bridge tells once a second: the last overview, and the last ten minutes of it
// for the plots.
import { get, listen, name, Problem } from './api.js';

const kept = 600000; // ms of the plots
const quiet = 6000; // ms after which a stream that says nothing is not live
const dead = 15000; // ms after which it is begun anew
const oldest = 20; // s that figures may be old
const listeners = new Set();

export const live = { overview: null, history: new Map(), failed: null, heard: -Infinity };

// follow calls listener with each overview, and also each second while none comes: ages grow.
export function follow(listener, signal) {
  listeners.add(listener);
  signal.addEventListener('abort', () => listeners.delete(listener));
  if (live.overview) listener(live.overview);
}

function tell() {
  for (const listener of listeners) if (live.overview) listener(live.overview);
  for (const watcher of watchers) watcher();
}

// watch calls watcher whenever it may have changed whether the page is live.
const watchers = new Set();
export function watch(watcher) {
  watchers.add(watcher);
  watcher();
}

// age is how many seconds old the figures of the overview are.
export function age() {
  return live.overview ? live.overview.age_s + (performance.now() - live.heard) / 1000 : Infinity;
}

// stale says why the figures may not be those of now; null where they are. That the stream is
// open proves nothing: what has come over it, and how old that was, decides.
export function stale() {
  if (live.failed) return live.failed;
  if (performance.now() - live.heard > quiet) return live.overview ? 'The bridge is silent.' : 'The bridge has not answered yet.';
  if (age() > oldest) return 'Redis is silent.';
  return null;
}

// mayChange reports whether the caller may change anything.
export const mayChange = () => live.overview?.caller.may_change === true;

function remember(overview) {
  live.overview = overview;
  live.failed = null;
  live.heard = performance.now();
  document.documentElement.dataset.may = overview.caller.may_change ? 'change' : 'look';
  const at = Date.parse(overview.at);
  for (const q of overview.queues) {
    if (!live.history.has(q.name)) recall(q.name);
    const points = live.history.get(q.name) || [];
    if (points.at(-1)?.at === at) continue;
    if (at - points.at(-1)?.at > 2 * quiet) recall(q.name);
    points.push({ at, published: q.rates?.published, scheduled: q.rates?.scheduled, p50: q.lateness?.p50_s, p99: q.lateness?.p99_s });
    live.history.set(q.name, points.filter((p) => at - p.at < kept));
  }
  tell();
}

// recall fills in what the bridge remembers of the time when this page did not listen.
function recall(queue) {
  get(`queues/${name(queue)}/recent`).then(({ points }) => {
    const had = live.history.get(queue) || [];
    const more = points.map((p) => ({ at: Date.parse(p.at), over: p.over_s * 1000, published: p.published, scheduled: p.scheduled, p50: p.p50_s, p99: p.p99_s }))
      .filter((p) => !had.some((h) => Math.abs(h.at - p.at) < quiet));
    live.history.set(queue, [...had, ...more].sort((a, b) => a.at - b.at));
    tell();
  }).catch(() => {}); // The plots begin now; the stream tells of what fails.
}

// seen resolves once the page can be seen, with a signal that ends when it cannot any
// more. A browser has six connections to a bridge for all its tabs, so only
// those that somebody looks at keep one.
function seen() {
  return new Promise((resolve) => {
    const look = () => {
      if (document.visibilityState !== 'visible') return;
      document.removeEventListener('visibilitychange', look);
      const hidden = new AbortController();
      document.addEventListener('visibilitychange', () => hidden.abort(), { once: true, signal: hidden.signal });
      addEventListener('pagehide', () => hidden.abort(), { once: true, signal: hidden.signal });
      resolve(hidden.signal);
    };
    document.addEventListener('visibilitychange', look);
    look();
  });
}

// listenOnce listens until the page is hidden, the bridge ends the stream, or says nothing.
async function listenOnce(hidden, heard) {
  const silent = new AbortController();
  let last = performance.now();
  const look = setInterval(() => { if (performance.now() - last > dead) silent.abort(); }, 1000);
  try {
    await listen((overview) => { last = performance.now(); heard(); remember(overview); }, AbortSignal.any([hidden, silent.signal]));
  } finally {
    clearInterval(look);
  }
}

// run listens for ever, again after each failure; refused(problem) is called where a
// token is needed.
export async function run(refused) {
  setInterval(() => { if (performance.now() - live.heard > 2000) tell(); }, 1000);
  for (let wait = 500; ; wait = Math.min(2 * wait, 10000)) {
    const hidden = await seen();
    try {
      await listenOnce(hidden, () => { wait = 500; });
      live.failed = 'The bridge has ended the stream.';
    } catch (err) {
      if (hidden.aborted) continue;
      live.failed = err.name === 'AbortError' ? 'The bridge is silent.' : err.message;
      if (err instanceof Problem && (err.status === 401 || err.status === 403)) await refused(err);
    }
    tell();
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
