import { get, name } from '../api.js';
import { startJob, whenFields, whenOf } from '../ask.js';
import { badge, button, change, el, field, given, input, note, replace, scroll, select } from '../dom.js';
import { asOf } from '../fresh.js';
import { instant, typed, zone, count } from '../format.js';
import { when } from '../when.js';

const states = [['', 'anywhere'], ['scheduled', 'scheduled'], ['parked', 'parked'], ['in_flight', 'in flight'], ['dead', 'dead']];
const limit = 100;

export const title = ({ queue }) => `Messages of ${queue}`;

export async function show(root, query, signal) {
  const { queue } = query;
  const filter = filterOf(query);
  const body = el('tbody');
  const more = el('p.actions');
  root.append(form(query), bulk(queue, filter), scroll('Messages', head(), body), more);
  let shown = 0;
  const page = async (cursor) => {
    const answer = await get(`queues/${name(queue)}/messages`, { ...filter, limit, cursor }, signal);
    body.append(...answer.messages.map((m) => row(queue, m)));
    shown += answer.messages.length;
    const next = answer.next_cursor;
    replace(more, el('span', null, `${count(shown)} shown. `), next
      ? button(answer.messages.length ? 'More' : 'Nothing found so far: look further', () => page(next).catch((err) => note(err.message, true)))
      : el('span', null, 'That is all.'));
  };
  asOf(root, signal);
  await page('');
}

// filterOf is the part of the page's address that the API reads.
export function filterOf({ state, topic, key, tag, id_prefix: idPrefix, due_from: from, due_to: to }) {
  const filter = { state, topic, key, tag, id_prefix: idPrefix, due_from: from, due_to: to };
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
}

function form(query) {
  const shown = el('form.filter', {
    role: 'search', 'aria-label': 'Filter',
    onsubmit: (event) => {
      event.preventDefault();
      const values = Object.fromEntries(new FormData(shown));
      for (const bound of ['due_from', 'due_to']) if (values[bound]) values[bound] = instant(values[bound]);
      location.hash = `#/messages?${new URLSearchParams(Object.entries({ queue: query.queue, ...values }).filter(([, value]) => value))}`;
    },
  },
  field('State', select('state', states, query.state || '')),
  field('Topic', input('topic', { value: query.topic })),
  field('Key', input('key', { value: query.key })),
  field('Tag', input('tag', { value: query.tag })),
  field('Id begins with', input('id_prefix', { value: query.id_prefix })),
  field('Due from', input('due_from', { type: 'datetime-local', step: 1, value: typed(query.due_from), title: zone() })),
  field('Due before', input('due_to', { type: 'datetime-local', step: 1, value: typed(query.due_to), title: zone() })),
  el('button.primary', { type: 'submit' }, 'List'));
  return shown;
}

function bulk(queue, filter) {
  if (!Object.keys(filter).length) return el('p.none', null, 'Filter, to cancel or reschedule all that match.');
  return el('p.actions', null,
    change('Cancel all that match …', () => startJob({
      queue, path: 'messages:cancel', filter, title: `Cancel all that match in ${queue}`, verb: 'Cancel', danger: true,
      effect: 'Each message that matches is removed and will not be published. This cannot be undone.',
    })),
    change('Reschedule all that match …', () => startJob({
      queue, path: 'messages:reschedule', filter, title: `Reschedule all that match in ${queue}`, verb: 'Reschedule',
      effect: 'Each message that matches gets another due time.',
      fields: [whenFields(), field('Or by', input('by', { placeholder: '+30m' }), 'Each from its own due time.')],
      extra: (values) => (values.by ? { by: values.by.trim() } : whenOf(values)),
    })));
}

export function head() {
  return el('thead', null, el('tr', null, ['Id', 'Key', 'Topic', 'State', 'Due', 'Attempt', 'Tags', 'Why'].map((text) => el('th', { scope: 'col' }, text))));
}

export function stateBadge(m) {
  const kinds = { scheduled: 'plain', parked: 'warn', in_flight: 'good', dead: 'bad', published: 'good', cancelled: 'plain' };
  return badge(kinds[m.state] || 'plain', m.state.replace('_', ' '));
}

export function row(queue, m) {
  const cell = (label, ...content) => el('td', { 'data-name': label }, content);
  return el('tr', null,
    cell('Id', el('a', { href: `#/message?${new URLSearchParams({ queue, id: m.id, key: m.key })}` }, given(m.id))),
    cell('Key', given(m.key)), cell('Topic', given(m.topic)), cell('State', stateBadge(m)), cell('Due', when(m.due_at)),
    cell('Attempt', String(m.attempt)), cell('Tags', given((m.tags || []).join(', '))), cell('Why', given(m.reason)));
}

