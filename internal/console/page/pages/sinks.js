import { badge, el, facts, given, replace, table } from '../dom.js';
import { clock, count, duration } from '../format.js';
import { age, follow, stale } from '../live.js';
import { when } from '../when.js';

export const title = () => 'Sinks';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  follow(({ sinks, at: read }) => {
    root.classList.toggle('stale', stale() !== null);
    replace(at, el('p.age', null, stale() ? el('b.error', null, `${stale()} What is shown is ${duration(age())} old.`) : `As of ${clock(read)}`), sinks.map(one));
  }, signal);
}

function one(s) {
  return el('section', null, el('h2', null, s.name, ' ', s.up ? badge('good', 'up') : badge('bad', 'down')),
    facts([['Broker', s.type], ['Queues', s.queues.join(', ')], [s.up ? 'Up since' : 'Down since', s.since && when(s.since)], ['Why', s.detail]]),
    table(`Routes of ${s.name} that messages are parked for`, [
      { name: 'Route', of: (r) => given(r.route) },
      { name: 'Queue', of: (r) => el('a', { href: `#/messages?${new URLSearchParams({ queue: r.queue, state: 'parked' })}` }, r.queue) },
      { name: 'Parked', number: true, of: (r) => count(r.messages) },
      { name: 'Since', of: (r) => when(r.since) },
      { name: 'Oldest due', of: (r) => when(r.oldest_due_at) },
      { name: 'Why', of: (r) => r.reason },
    ], s.routes || [], s.unknown ? `Which routes of ${s.unknown.join(', ')} are open is not known: Redis does not tell.` : 'All routes are open.'),
    s.unknown && s.routes?.length ? el('p.none', null, `Those of ${s.unknown.join(', ')} are not known.`) : null);
}
