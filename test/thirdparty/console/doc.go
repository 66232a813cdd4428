// Package console uses the operators' page as a person does: in headless Chromium,
// with a real bridge, Redis and broker. What an action has done is looked up in Redis
// and at the broker, not on the page.
//
// It is a module of its own, so that the browser's driver is in nobody's dependencies.
package console
