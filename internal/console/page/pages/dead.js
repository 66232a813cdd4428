import { get, name, post } from '../api.js';
import { act, startJob } from '../ask.js';
import { button, change, el, given, note, replace, scroll, visible } from '../dom.js';
import { asOf } from '../fresh.js';
import { count } from '../format.js';
import { when } from '../when.js';

const limit = 500;

export const title = ({ queue }) => `Dead letters of ${queue}`;

export async function show(root, { queue }, signal) {
  const groups = new Map();
  const at = el('div');
  root.append(at);
  asOf(root, signal);
  const page = async (cursor) => {
    const answer = await get(`queues/${name(queue)}/messages`, { state: 'dead', limit, cursor }, signal);
    for (const m of answer.messages) {
      const reason = m.reason || '';
      groups.set(reason, [...(groups.get(reason) || []), m]);
    }
    draw(at, queue, groups, answer.next_cursor, page);
  };
  await page('');
}

function draw(at, queue, groups, next, page) {
  const sorted = [...groups].sort(([, a], [, b]) => b.length - a.length);
  const shown = sorted.reduce((sum, [, list]) => sum + list.length, 0);
  replace(at,
    sorted.length ? el('p.actions', null,
      change('Redrive all …', () => job(queue, redrive, 'all')),
      change('Purge all …', () => job(queue, purge, 'all'))) : el('p.calm', null, 'There are none.'),
    ...sorted.map(([reason, list]) => group(queue, reason, list, next)),
    el('p.actions', null, el('span', null, `${count(shown)} shown. `),
      next ? button('More', () => page(next).catch((err) => note(err.message, true))) : ''));
}

const redrive = { path: 'dead:redrive', verb: 'Redrive', effect: 'Each dead letter that matches leaves the dead letters and is tried again at once.' };
const purge = { path: 'dead:purge', verb: 'Purge', effect: 'Each dead letter that matches is deleted for good, with its body. This cannot be undone.', danger: true };

function job(queue, what, which, filter = { state: 'dead' }) {
  return startJob({ ...what, queue, filter, of: 'dead letters', title: `${what.verb} ${which} dead letters of ${queue}` });
}

// group is what died for one reason, to the letter. A bridge of an earlier version would take
// the reason for a part of one: it knows no reason_contains, and refuses the call.
function group(queue, reason, list, more) {
  const filter = { state: 'dead', reason, reason_contains: reason };
  return el('details.group', { open: list.length < 20 }, el('summary', null, `${more ? 'at least ' : ''}${count(list.length)} × `, reason ? given(reason) : 'no reason is known'),
    reason && el('p.actions', null,
      change('Redrive these …', () => job(queue, redrive, 'these', filter)),
      change('Purge these …', () => job(queue, purge, 'these', filter))),
    scroll(visible(reason || 'no reason is known'), el('thead', null, el('tr', null,
      ['Id', 'Key', 'Topic', 'Died', 'Attempts', 'Action'].map((text) => el('th', { scope: 'col' }, text)))),
    el('tbody', null, list.map((m) => el('tr', null,
      el('td', { 'data-name': 'Id' }, el('a', { href: `#/message?${new URLSearchParams({ queue, id: m.id, key: m.key })}` }, given(m.id))),
      el('td', { 'data-name': 'Key' }, given(m.key)), el('td', { 'data-name': 'Topic' }, given(m.topic)), el('td', { 'data-name': 'Died' }, when(m.end?.at)),
      el('td', { 'data-name': 'Attempts' }, String(m.attempt)),
      el('td', { 'data-name': 'Action' }, change('Redrive', () => one(queue, m))))))));
}

function one(queue, m) {
  return act({
    title: ['Redrive ', given(m.id)], effect: 'It leaves the dead letters and is tried again at once.', action: 'Redrive',
    does: () => post(`queues/${name(queue)}/messages/${name(m.id)}:reschedule`, { in: '0s' }, { key: m.key }),
    done: () => [given(m.id), ' is tried again.'],
  });
}
