// How old what a page shows is, and what keeps it fresh.
import { Problem } from './api.js';
import { button, el, replace } from './dom.js';
import { away, clock } from './format.js';

function said(at, failed) {
  const time = el('time', { datetime: new Date(at).toISOString(), title: new Date(at).toISOString() }, clock(at));
  if (!failed) return ['As of ', time];
  return [el('b', null, failed), at ? [` What is shown is from `, time, `, ${away(at)}, and may not be so any more.`] : ''];
}

// poll calls look again and again, which draws what it has read and may return how many
// seconds old that was. Where it fails, what was drawn before stays, marked as old.
export async function poll(root, every, signal, look) {
  const told = el('p.age');
  root.prepend(told);
  for (let at = 0; !signal.aborted;) {
    try {
      at = Date.now() - 1000 * (await look() || 0);
      root.classList.remove('stale');
      replace(told, said(at));
    } catch (err) {
      const known = err instanceof Problem;
      if (signal.aborted || !known || (err.status >= 400 && err.status < 500)) throw err;
      root.classList.toggle('stale', at > 0);
      replace(told, el('span.error', { role: 'alert' }, said(at, `${err.message} Trying again.`)));
    }
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

// asOf says when a list that stays as it is was read, how long ago that is, and offers
// to read it again.
export function asOf(root, signal) {
  const at = Date.now();
  const told = el('p.age');
  root.prepend(told);
  const tell = () => replace(told, 'As of ', el('time', { datetime: new Date(at).toISOString() }, clock(at), ' ', el('small', null, away(at))), ' ',
    button('Look again', () => dispatchEvent(new Event('hashchange')), { class: 'quiet' }));
  tell();
  const ticking = setInterval(tell, 5000);
  signal.addEventListener('abort', () => clearInterval(ticking));
}
