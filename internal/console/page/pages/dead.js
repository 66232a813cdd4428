import { get, name, post } from '../api.js';
import { act, startJob } from '../ask.js';
import { button, el, note, replace, scroll } from '../dom.js';
import { count } from '../format.js';
import { when } from '../when.js';

const limit = 500;

export const title = ({ queue }) => `Dead letters of ${queue}`;

export async function show(root, { queue }, signal) {
  const groups = new Map();
  const at = el('div');
  root.append(at);
  const page = async (cursor) => {
    const answer = await get(`queues/${name(queue)}/messages`, { state: 'dead', limit, cursor }, signal);
    for (const m of answer.messages) {
      const reason = m.reason || 'no reason is known';
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
      button('Redrive all …', () => job(queue, 'redrive', 'Redrive', 'tried again at once')),
      button('Purge all …', () => job(queue, 'purge', 'Purge', 'removed for good', true))) : el('p.calm', null, 'There are none.'),
    ...sorted.map(([reason, list]) => group(queue, reason, list)),
    el('p.actions', null, el('span', null, `${count(shown)} shown. `),
      next ? button('More', () => page(next).catch((err) => note(err.message, true))) : ''));
}

function job(queue, path, title, verb, danger, filter = { state: 'dead' }) {
  return startJob({ queue, path: `dead:${path}`, filter, title, verb, danger });
}

function group(queue, reason, list) {
  return el('details.group', { open: list.length < 20 }, el('summary', null, `${count(list.length)} × `, reason),
    el('p.actions', null,
      button('Redrive these …', () => job(queue, 'redrive', 'Redrive', 'tried again at once', false, { state: 'dead', reason })),
      button('Purge these …', () => job(queue, 'purge', 'Purge', 'removed for good', true, { state: 'dead', reason }))),
    scroll(reason, el('thead', null, el('tr', null,
      ['Id', 'Key', 'Topic', 'Died', 'Attempts', 'Action'].map((text) => el('th', { scope: 'col' }, text)))),
    el('tbody', null, list.map((m) => el('tr', null,
      el('td', { 'data-name': 'Id' }, el('a', { href: `#/message?${new URLSearchParams({ queue, id: m.id, key: m.key })}` }, m.id)),
      el('td', { 'data-name': 'Key' }, m.key), el('td', { 'data-name': 'Topic' }, m.topic), el('td', { 'data-name': 'Died' }, when(m.end?.at)),
      el('td', { 'data-name': 'Attempts' }, String(m.attempt)),
      el('td', { 'data-name': 'Action' }, button('Redrive', () => one(queue, m))))))));
}

function one(queue, m) {
  return act({
    title: `Redrive ${m.id}`, effect: 'It leaves the dead letters and is tried again at once.', action: 'Redrive',
    does: () => post(`queues/${name(queue)}/messages/${name(m.id)}:reschedule`, { in: '0s' }, { key: m.key }),
    done: () => `${m.id} is tried again.`,
  });
}
