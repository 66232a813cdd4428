package app

import (
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

// encryptionModule provides the keys of bodies; nil where there are none.
var encryptionModule = fx.Module("encryption", fx.Provide(Keys))

// Keys reads the configured keys of bodies; nil where there are none. The logger is told
// when they change; it may be nil.
func Keys(cfg *config.Config, logger *slog.Logger) (*seal.Keyring, error) {
	if cfg.Encryption.Keys == "" {
		return nil, nil //nolint:nilnil // There need not be any.
	}
	ring, err := seal.Load(cfg.Encryption.Keys, logger)
	if err != nil {
		return nil, fmt.Errorf("encryption.keys: %w", err)
	}
	return ring, nil
}

// Sealing are the options of the SDK for what the bridge and its commands schedule.
func Sealing(keys *seal.Keyring) []delay.Option {
	if keys == nil {
		return nil
	}
	return []delay.Option{delay.WithEncryption(keys)}
}

// opener opens bodies.
func opener(keys *seal.Keyring) func(*message.Message) error {
	return func(m *message.Message) error { return seal.Open(keys, m) }
}
