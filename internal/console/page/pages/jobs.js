import { get, name, post } from '../api.js';
import { act } from '../ask.js';
import { badge, change, el, given, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { count } from '../format.js';
import { when } from '../when.js';

const every = 1000;

export const title = () => 'Jobs';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  await poll(root, every, signal, async () => {
    const { jobs } = await get('jobs', null, signal);
    replace(at, jobTable(jobs, query.job));
  });
}

function jobTable(jobs, chosen) {
  return table('Jobs', [
    { name: 'Job', of: (j) => (j.job === chosen ? el('b', null, j.job) : j.job) },
    { name: 'Queue', of: (j) => j.queue },
    { name: 'What', of: (j) => [j.dry_run ? 'count only: ' : '', j.verb, ' ', el('small', null, given(JSON.stringify(j.filter)))] },
    { name: 'State', of: (j) => badge({ failed: 'bad', running: 'good' }[j.state] || 'plain', j.state) },
    { name: 'Matched', number: true, of: (j) => count(j.matched) },
    { name: 'Done', number: true, of: (j) => count(j.done) },
    { name: 'Too late', number: true, of: (j) => count(j.too_late) },
    { name: 'Maybe published', number: true, of: (j) => count(j.maybe_published) },
    { name: 'Failed', number: true, of: (j) => count(j.failed) },
    { name: 'Still match', number: true, of: (j) => (j.remaining === undefined ? '' : count(j.remaining)) },
    { name: 'Begun', of: (j) => when(j.started_at) },
    { name: 'Action', of: (j) => (['running', 'waiting'].includes(j.state) ? change('Stop …', () => stop(j)) : '') },
  ], jobs, 'There are none. They begin where messages or dead letters are filtered.');
}

function stop(j) {
  return act({
    title: `Stop ${j.job}`, effect: 'What is done stays done; the rest is left as it is.', action: 'Stop', danger: true,
    does: () => post(`jobs/${name(j.job)}:stop`, {}), done: () => `${j.job} is stopped.`,
  });
}
