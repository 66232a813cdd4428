// Signing in at an issuer: the code flow with PKCE. The page makes the secrets and sends the reader to the
// issuer, who sends them back with a code; the bridge changes that for an ID token.
import { get, post, Problem, renewBy, setToken } from './api.js';

const pendingKey = 'delaybridge.signing-in';
const sessionKey = 'delaybridge.session';
const early = 30000; // ms before its end that a token is renewed

const read = (key) => JSON.parse(sessionStorage.getItem(key) || 'null');
const write = (key, value) => (value ? sessionStorage.setItem(key, JSON.stringify(value)) : sessionStorage.removeItem(key));

// here is where the issuer sends the reader back to: this page, wherever a proxy has put it.
const here = () => new URL('.', document.baseURI).href;

const base64url = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const secret = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

// issuers are those at which the reader can sign in; none where the bridge cannot be asked.
export const issuers = () => get('sign-in').then((answer) => answer.issuers, () => []);

// begin sends the reader to an issuer.
export async function begin(issuer) {
  if (!crypto.subtle) throw new Problem(0, { detail: 'A browser lets a page sign in only over HTTPS, or on this host itself.' });
  const pending = { issuer, state: secret(), verifier: secret(), page: location.hash };
  write(pendingKey, pending);
  const to = new URL(issuer.authorization_endpoint);
  for (const [name, value] of Object.entries({
    response_type: 'code', client_id: issuer.client_id, scope: issuer.scope, redirect_uri: here(), state: pending.state,
    code_challenge: base64url(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(pending.verifier))), code_challenge_method: 'S256',
  })) to.searchParams.set(name, value);
  location.assign(to);
}

// finish signs the reader in who comes back from an issuer, and shows the page that was left. It throws what went wrong.
export async function finish() {
  const query = new URLSearchParams(location.search);
  if (!query.has('state')) return;
  const pending = read(pendingKey);
  write(pendingKey, null);
  history.replaceState(null, '', here() + (pending?.page || ''));
  const isOurs = pending && query.get('state') === pending.state && (!query.has('iss') || query.get('iss') === pending.issuer.issuer);
  if (!isOurs) throw new Problem(0, { detail: 'This sign-in was not begun in this tab. Begin it once more.' });
  if (!query.has('code')) {
    throw new Problem(0, { detail: `${pending.issuer.name} did not sign you in: ${query.get('error_description') || query.get('error') || 'no reason'}` });
  }
  await exchange(pending.issuer, { code: query.get('code'), code_verifier: pending.verifier, redirect_uri: here() });
}

async function exchange(issuer, grant) {
  const signed = await post(`sign-in/${encodeURIComponent(issuer.name)}`, grant);
  write(sessionKey, { issuer, refresh: signed.refresh_token, ends: Date.now() + signed.expires_in_s * 1000, hint: signed.id_token });
  setToken(signed.id_token);
}

// renew keeps the reader signed in, where the issuer lets it. If it fails, the token serves as long as it lasts.
let renewing = null;
async function renew() {
  const session = read(sessionKey);
  if (!session?.refresh || Date.now() < session.ends - early) return;
  renewing ||= exchange(session.issuer, { refresh_token: session.refresh }).catch((err) => {
    if (err.status !== 0 && err.status < 500 && err.status !== 429) write(sessionKey, { ...session, refresh: null });
  }).finally(() => { renewing = null; });
  await renewing;
}
renewBy(renew);

// leave signs out, at the issuer, too, where it says how. It does not return.
export function leave() {
  const session = read(sessionKey);
  write(sessionKey, null);
  setToken(null);
  if (!session?.issuer.end_session_endpoint) {
    location.reload();
    return;
  }
  const to = new URL(session.issuer.end_session_endpoint);
  to.searchParams.set('client_id', session.issuer.client_id);
  to.searchParams.set('id_token_hint', session.hint);
  to.searchParams.set('post_logout_redirect_uri', here());
  location.assign(to);
}

// forget ends the session of somebody who gives a token by hand.
export const forget = () => write(sessionKey, null);
