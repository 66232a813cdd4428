import { del, get, name, post } from '../api.js';
import { act, whenFields, whenOf } from '../ask.js';
import { button, el, facts, replace, table } from '../dom.js';
import { away } from '../format.js';
import { when } from '../when.js';
import { stateBadge } from './messages.js';

const every = 2000;

export const title = ({ id }) => `Message ${id}`;

export async function show(root, { queue, id, key }, signal) {
  const path = `queues/${name(queue)}/messages/${name(id)}`;
  const shown = el('div');
  const body = payload(path, key); // It stays as it is while the rest is drawn anew.
  root.append(shown);
  let last = null;
  while (!signal.aborted) {
    try {
      last = await get(path, { key }, signal);
      replace(shown, story(last), actions(path, key, last), about(queue, last));
      if (ended.includes(last.state)) body.remove();
      else if (!body.isConnected) root.append(body);
    } catch (err) {
      if (signal.aborted || err.code !== 'not_found') throw err;
      body.remove();
      replace(shown, el('p.calm', null, last
        ? 'It has left: published, or cancelled. The queue keeps no history of it; consumers have it under its topic.'
        : 'There is no such message: published, cancelled and not remembered, or never scheduled.'), last && about(queue, last));
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

const past = { published: 'published', cancelled: 'cancelled', dropped: 'dropped', purged: 'purged', dead: 'died' };
const ended = ['published', 'cancelled', 'dropped', 'purged'];

// story tells in sentences what has happened and what comes next.
function story(m) {
  const told = [];
  if (m.end && m.end.state !== m.state) told.push([`Before, ${past[m.end.state]}`, m.end.at, m.end.place || m.end.reason || '']);
  if (m.scheduled_at) told.push(['Scheduled', m.scheduled_at, '']);
  if (m.attempt > 1) told.push([`Tried ${m.attempt - 1} times`, null, m.state === 'dead' ? '' : m.reason || '']);
  if (m.maybe_published) told.push(['Maybe published', null, 'A copy may be at the broker: its answer was lost.']);
  const next = {
    scheduled: [Date.parse(m.due_at) > Date.now() ? 'Will be published' : 'Due, and not published yet', m.due_at, m.attempt > 1 ? '' : m.reason || ''],
    parked: ['Parked since its route is unavailable', m.due_at, [m.route, m.reason].filter(Boolean).join(': ')],
    in_flight: ['With the broker now', m.due_at, 'It is published when the broker acknowledges it.'],
    dead: ['Died', m.end?.at, m.reason],
    published: [`Published to ${m.topic}`, m.end?.at, [m.end?.place, `attempt ${m.attempt}`].filter(Boolean).join(', ')],
    cancelled: ['Cancelled', m.end?.at, m.reason || ''],
    dropped: ['Dropped', m.end?.at, m.reason || ''],
    purged: ['Purged from the dead letters', m.end?.at, m.reason || ''],
  }[m.state];
  if (next) told.push(next);
  return el('section', null, el('p.calm', null, stateBadge(m), m.due_at && m.state === 'scheduled' ? ` due ${away(m.due_at)}` : ''),
    el('ol.story', null, told.map(([what, at, why]) => el('li', null, el('b', null, what), at ? [' ', when(at)] : '', why ? el('small', null, ' ', why) : ''))));
}

function actions(path, key, m) {
  const moved = ({ maybe_published: maybe }) => (maybe ? ' A copy may have been published before.' : '');
  if (ended.includes(m.state)) return null;
  return el('p.actions', null,
    button('Publish now …', () => act({
      title: `Publish ${m.id} now`, action: 'Publish now',
      effect: m.state === 'dead' ? 'It leaves the dead letters and is tried again at once.' : `It is due at once, and not ${m.due_at ? away(m.due_at) : 'later'}.`,
      does: () => post(`${path}:publish-now`, {}, { key }), done: (answer) => `${m.id} is due now.${moved(answer)}`,
    })),
    button('Reschedule …', () => act({
      title: `Reschedule ${m.id}`, action: 'Reschedule', effect: 'It is published at the time that you give, and no earlier.', fields: whenFields(),
      does: (given) => post(`${path}:reschedule`, whenOf(given), { key }), done: (answer) => `${m.id} is rescheduled.${moved(answer)}`,
    })),
    button('Cancel …', () => act({
      title: `Cancel ${m.id}`, action: 'Cancel the message', danger: true, effect: 'It is removed and will not be published. This cannot be undone.',
      does: () => del(path, { key }), done: (answer) => `${m.id} is cancelled.${moved(answer)}`,
    })));
}

function about(queue, m) {
  const headers = Object.entries(m.headers || {});
  return el('section', null, el('h2', null, 'What it is'), facts([
    ['Queue', el('a', { href: `#/queue?queue=${name(queue)}` }, queue)],
    ['Id', m.id], ['Key', m.key], ['Topic', m.topic], ['Due', when(m.due_at)],
    ['Tags', (m.tags || []).map((tag) => el('a.badge.plain', { href: `#/messages?${new URLSearchParams({ queue, tag })}` }, tag)).flatMap((a) => [a, ' '])],
    ['Attempt', String(m.attempt)], ['Route', m.route],
  ].filter(([, value]) => !Array.isArray(value) || value.length)),
  ended.includes(m.state) ? null : el('h3', null, 'Headers'),
  ended.includes(m.state) ? null : table('Headers', [{ name: 'Name', of: ([header]) => header }, { name: 'Value', of: ([, value]) => value }], headers, 'It has none of the producer’s.'));
}

// payload is shown on demand only: it may be large, or nobody else's affair.
function payload(path, key) {
  const section = el('section', null, el('h3', null, 'Body'), button('Show the body', async (event) => {
    try {
      const m = await get(path, { key, body: 1 });
      const text = m.body ?? (m.body_base64 && `base64: ${m.body_base64}`);
      const shown = text === undefined
        ? el('p.calm', { tabindex: -1 }, `It is encrypted with the key ${m.headers['delay-sealed']}, and not shown here.`)
        : el('pre', { tabindex: 0, role: 'region', 'aria-label': 'Body' }, text);
      event.target.replaceWith(shown);
      shown.focus();
    } catch (err) {
      section.append(el('p.error', null, err.message));
    }
  }));
  return section;
}
