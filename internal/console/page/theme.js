// Before the first paint, so that a dark page never flashes.
document.documentElement.dataset.theme = localStorage.getItem('delaybridge.theme') || 'system';
