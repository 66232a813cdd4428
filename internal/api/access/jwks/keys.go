package jwks

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

const (
	// mostBytes and mostKeys are the largest that a set, or the issuer's description of itself, may be.
	mostBytes = 256 << 10
	mostKeys  = 100
	// leastRSA is the length of an RSA key in bits: RFC 7518 demands it.
	leastRSA = 2048
)

// parse reads a set of keys (RFC 7517). It leaves out those that sign nothing, and those of kinds
// that we do not know: issuers add such keys without asking us.
func parse(content []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("the keys are no JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > mostKeys {
		return nil, fmt.Errorf("the set has %d keys, allowed are %d", len(set.Keys), mostKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err == nil && isForSigning(&key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the set has no public key for signatures: RSA of 2048 bits or more, EC or Ed25519")
	}
	return keys, nil
}

func isForSigning(key *jose.JSONWebKey) bool {
	if rsaKey, ok := key.Key.(*rsa.PublicKey); ok && rsaKey.N.BitLen() < leastRSA {
		return false
	}
	return key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig")
}
