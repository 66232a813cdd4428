import { del, get, name, post } from '../api.js';
import { act } from '../ask.js';
import { badge, change, el, given, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { count } from '../format.js';
import { when } from '../when.js';

const every = 2000;
const cancelled = 'Its firings that are not due yet are cancelled; what is due or in flight may still come.';

export const title = ({ queue }) => `Recurring schedules of ${queue}`;

export async function show(root, { queue }, signal) {
  const at = el('div');
  root.append(at);
  await poll(root, every, signal, async () => {
    const { recurring } = await get(`queues/${name(queue)}/recurring`, null, signal);
    replace(at, schedules(queue, recurring));
  });
}

function schedules(queue, list) {
  return table('Recurring schedules', [
    { name: 'Name', of: (r) => given(r.name) },
    { name: 'When', of: (r) => [el('code', null, given(r.cron)), ' ', el('small', null, given(r.zone) || 'UTC')] },
    { name: 'Topic', of: (r) => given(r.topic) },
    { name: 'Next', of: (r) => next(queue, r) },
    { name: 'Scheduled', number: true, of: (r) => count(r.scheduled) },
    { name: 'Skipped', number: true, of: (r) => count(r.skipped) },
    { name: 'Action', of: (r) => [r.paused ? resume(queue, r) : pause(queue, r), ' ', remove(queue, r)] },
  ], list, 'There are none. Programs set them by the SDK or the API, and you by bridge recurring set.');
}

// next leads to the message of the next firing, which waits already.
function next(queue, r) {
  if (r.paused) return [badge('warn', 'paused'), ' since ', when(r.paused_at), ', by ', r.paused_by ? given(r.paused_by) : 'an unknown'];
  if (!r.next) return 'none follows';
  const query = new URLSearchParams({ queue, id: `${r.name}@${r.next.replace('.000Z', 'Z')}`, key: r.key || '' });
  return el('a', { href: `#/message?${query}` }, when(r.next));
}

const path = (queue, r) => `queues/${name(queue)}/recurring/${name(r.name)}`;

function pause(queue, r) {
  return change('Pause …', () => act({
    title: ['Pause ', given(r.name)], effect: `${cancelled} What it would fire until it is resumed is not made up for.`, action: 'Pause', danger: true,
    does: () => post(`${path(queue, r)}:pause`), done: () => [given(r.name), ' is paused.'],
  }));
}

function resume(queue, r) {
  return change('Resume …', () => act({
    title: ['Resume ', given(r.name)], effect: 'It fires again, from now on.', action: 'Resume',
    does: () => post(`${path(queue, r)}:resume`), done: () => [given(r.name), ' is resumed.'],
  }));
}

function remove(queue, r) {
  return change('Delete …', () => act({
    title: ['Delete ', given(r.name)], effect: `${cancelled} A program that sets it when it starts makes it again.`, action: 'Delete', danger: true,
    does: () => del(path(queue, r)), done: () => [given(r.name), ' is deleted.'],
  }));
}
