// The API lies beside the page, so a proxy may serve both behind any path.
const base = new URL('api/v1/', document.baseURI);
const tokenKey = 'delaybridge.token';

// Problem is an answer that says no: code is for programs, message for people.
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the bridge answered ${status}`);
    this.status = status;
    this.code = body.code || '';
    // Without a key nothing is there; something may be under one, which the search finds.
    this.isMissing = this.code === 'not_found' || (this.code === 'invalid' && body.field === 'key');
    this.field = body.field || '';
  }
}

export function setToken(token) {
  if (token) sessionStorage.setItem(tokenKey, token);
  else sessionStorage.removeItem(tokenKey);
}

export function hasToken() {
  return sessionStorage.getItem(tokenKey) !== null;
}

// renewBy is told what keeps the token in force, before each call but those by which somebody signs in.
let renew = async () => {};
export function renewBy(does) {
  renew = does;
}

async function send(method, path, { query, body, signal } = {}) {
  const dots = /\/messages\/(\.\.?)$/.exec(path); // Else it is a way up.
  const url = new URL(dots ? path.slice(0, -dots[1].length) + '-' : path, base);
  if (dots) url.searchParams.set('dots', dots[1].length);
  for (const [name, value] of Object.entries(query || {})) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(name, value);
  }
  if (!path.startsWith('sign-in')) await renew();
  const headers = {};
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(url, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Problem(0, { detail: 'The bridge does not answer.', code: 'unreachable' });
  }
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

async function json(method, path, options) {
  const answer = await send(method, path, options);
  const text = await answer.text();
  return text ? JSON.parse(text) : {};
}

export const get = (path, query, signal) => json('GET', path, { query, signal });
export const post = (path, body, query) => json('POST', path, { body, query });
export const del = (path, query) => json('DELETE', path, { query });

// name makes a part of a path; an id may have slashes.
export const name = encodeURIComponent;

// listen calls on(data) for each overview until the signal ends it. EventSource cannot
// send a token, so the stream is read here.
export async function listen(on, signal) {
  const answer = await send('GET', 'events', { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
      if (data) on(JSON.parse(data));
    }
  }
}
