package webhook

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// The forms of secrets, and the limits on their bytes (Standard Webhooks 1.0.0).
const (
	symmetricPrefix  = "whsec_"
	asymmetricPrefix = "whsk_"
	symmetricLeast   = 24
	symmetricMost    = 64
	// secretsMost bounds the secrets of an endpoint: two are enough to rotate one.
	secretsMost = 8
)

// signer makes one signature, as the header has it.
type signer func(content []byte) string

// parseSecrets reads a file of secrets. Its errors show none.
func parseSecrets(content []byte) (signers []signer, err error) {
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		s, err := parseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		signers = append(signers, s)
	}
	if len(signers) == 0 || len(signers) > secretsMost {
		return nil, fmt.Errorf("%d secrets, allowed are 1 to %d", len(signers), secretsMost)
	}
	return signers, nil
}

func parseSecret(text string) (signer, error) {
	encoded, isSymmetric := strings.CutPrefix(text, symmetricPrefix)
	if !isSymmetric {
		var isAsymmetric bool
		if encoded, isAsymmetric = strings.CutPrefix(text, asymmetricPrefix); !isAsymmetric {
			return nil, errors.New("begins neither with " + symmetricPrefix + " nor with " + asymmetricPrefix)
		}
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("is not base64 after its prefix")
	}
	switch n := len(key); {
	case isSymmetric && n >= symmetricLeast && n <= symmetricMost:
		return symmetric(key), nil
	case isSymmetric:
		return nil, fmt.Errorf("has %d bytes, allowed are %d to %d", n, symmetricLeast, symmetricMost)
	case n == ed25519.SeedSize:
		return asymmetric(ed25519.NewKeyFromSeed(key)), nil
	case n == ed25519.PrivateKeySize:
		return asymmetric(key), nil
	default:
		return nil, fmt.Errorf("has %d bytes, a private key of ed25519 has %d or %d", n, ed25519.SeedSize, ed25519.PrivateKeySize)
	}
}

func symmetric(key []byte) signer {
	return func(content []byte) string {
		mac := hmac.New(sha256.New, key)
		mac.Write(content)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
}

func asymmetric(key ed25519.PrivateKey) signer {
	return func(content []byte) string {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, content))
	}
}

// parseAuthorization reads the value of a header, which the error does not show.
func parseAuthorization(content []byte) (string, error) {
	value := strings.TrimSpace(string(content))
	if value == "" || hasControl(value) {
		return "", errors.New("must be one line, with a value of the header Authorization")
	}
	return value, nil
}
