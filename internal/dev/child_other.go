//go:build !unix

package dev

import (
	"context"
	"errors"
)

// canSupervise says whether a child can be made to die with us.
const canSupervise = false

type child struct{ redisServer }

func startChild(string, ...string) (*child, error) {
	return nil, errors.New("not on this system")
}

func (c *child) log() string { return "" }

func awaitPong(context.Context, string, *child) error { return nil }

// lock does nothing here.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// awaitTurn does nothing here.
func awaitTurn(context.Context) (done func()) { return func() {} }
