package window

// Kept is what is reserved or granted, of all shares.
func (w *Window) Kept() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept.messages, w.kept.bytes
}
