// What the bridge tells once a second: the last overview, and the last minutes of it
// for the plots.
import { listen, Problem } from './api.js';

const kept = 600; // points, one a second
const listeners = new Set();

export const live = { overview: null, history: new Map(), failed: null };

export function follow(listener, signal) {
  listeners.add(listener);
  signal.addEventListener('abort', () => listeners.delete(listener));
  if (live.overview) listener(live.overview);
}

function tell() {
  for (const listener of listeners) listener(live.overview);
}

function remember(overview) {
  live.overview = overview;
  live.failed = null;
  const at = Date.parse(overview.at);
  for (const q of overview.queues) {
    const points = live.history.get(q.name) || [];
    points.push({ at, published: q.rates?.published, scheduled: q.rates?.scheduled, p50: q.lateness?.p50_s, p99: q.lateness?.p99_s });
    live.history.set(q.name, points.slice(-kept));
  }
  tell();
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

// run listens for ever, again after each failure; refused(problem) is called where a
// token is needed.
export async function run(refused) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 10000)) {
    const hidden = await seen();
    try {
      await listen((overview) => { wait = 500; remember(overview); }, hidden);
      live.failed = 'The bridge has ended the stream.';
    } catch (err) {
      if (hidden.aborted) continue;
      live.failed = err.message;
      if (err instanceof Problem && (err.status === 401 || err.status === 403)) await refused(err);
    }
    if (live.overview) tell();
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
