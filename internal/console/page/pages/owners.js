import { get } from '../api.js';
import { badge, el, given, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { bytes, count } from '../format.js';
import { when } from '../when.js';

const every = 3000;

export const title = () => 'Owners';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  let isDeclaring = true;
  await poll(root, every, signal, async () => {
    const [usage, { queues }, declared] = await Promise.all([get('usage', null, signal), get('queues', null, signal), isDeclaring ? declarations(signal) : null]);
    isDeclaring = declared !== null;
    replace(at,
      el('section', null, el('h2', null, 'Usage'), used(usage), el('p.none', null,
        'Bytes are about what these messages take in Redis, as budgets count them. Scheduled and published are counted since the queue was made, copies included.')),
      el('section', null, el('h2', null, 'Where queues are declared'), sources(queues, declared || []), el('p.none', null,
        'Of a file, the last change is when this instance took it.')));
    return usage.age_s;
  });
}

// declarations are null where the configuration lets nobody declare queues by the API.
async function declarations(signal) {
  try {
    return (await get('declarations', null, signal)).declarations;
  } catch (err) {
    if (err.code === 'not_found') return null;
    throw err;
  }
}

const link = (queue) => el('a', { href: `#/queue?${new URLSearchParams({ queue })}` }, queue);
const part = (share) => (share === undefined ? '–' : `${(100 * share).toFixed(1)} %`);

// used is a row for the sum of each owner, above those of the owner's queues.
function used({ owners, total }) {
  const rows = owners.flatMap((o) => [{ ...o, isOwner: true }, ...o.queues]);
  if (owners.length > 1) rows.push({ ...total, isOwner: true, isAll: true });
  return table('Usage by owner and queue', [
    { name: 'Owner and queue', of: (r) => (r.isOwner ? el('b', null, r.isAll ? 'all' : r.owner ? given(r.owner) : 'no owner') : el('span.part', null, link(r.name))) },
    { name: 'Waiting', number: true, of: (r) => count(r.waiting) },
    { name: 'In flight', number: true, of: (r) => count(r.in_flight) },
    { name: 'Dead', number: true, of: (r) => count(r.dead) },
    { name: 'Bytes', number: true, of: (r) => (r.bytes === undefined ? 'unknown' : bytes(r.bytes)) },
    { name: 'of all bytes', number: true, of: (r) => (r.isOwner && !r.isAll ? part(r.bytes_share) : '') },
    { name: 'Scheduled', number: true, of: (r) => count(r.scheduled) },
    { name: 'Published', number: true, of: (r) => count(r.published) },
    { name: 'of all published', number: true, of: (r) => (r.isOwner && !r.isAll ? part(r.published_share) : '') },
    { name: 'Counted since', of: (r) => (r.error ? given(r.error) : r.counted_since ? when(r.counted_since) : '') },
  ], rows, 'There is no queue that you may see.');
}

// sources are the queues that there are, and those that are declared by the API and not, or not so, in force.
function sources(queues, declared) {
  const byName = new Map(declared.map((d) => [d.name, d]));
  const rows = queues.map((q) => ({ ...q, declaration: q.source === 'api' ? byName.get(q.name) : undefined }));
  for (const d of declared) {
    if (!rows.some((r) => r.declaration === d)) rows.push({ name: d.name, owner: d.queue.owner, contacts: d.queue.contacts, source: 'api', declaration: d, isMissing: true });
  }
  rows.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return table('Where queues are declared', [
    { name: 'Queue', of: (r) => (r.isMissing ? r.name : link(r.name)) },
    { name: 'Owner', of: (r) => (r.owner ? given(r.owner) : 'none') },
    { name: 'Contacts', of: (r) => (r.contacts || []).map((c, i) => [i ? ', ' : '', given(c)]) },
    { name: 'Declared in', of: (r) => ({ main: 'the main configuration', api: 'the API', file: given(r.file) })[r.source] },
    { name: 'State', of: (r) => state(r.declaration) },
    { name: 'Last change', of: (r) => (r.declaration ? [when(r.declaration.at), ' by ', given(r.declaration.by)] : r.in_force_since ? when(r.in_force_since) : 'unknown') },
  ], rows, 'There is no queue that you may see.');
}

function state(d) {
  if (d?.problems?.length) return [badge('bad', 'wrong'), ' ', d.problems.map((p) => el('div', null, given(p)))];
  return d && !d.in_force ? badge('warn', 'pending') : badge('good', 'in force');
}
