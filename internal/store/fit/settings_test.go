package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTooOld(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{"6.0.16": true, "5.0.7": true, "6.2.0": false, "7.0.15": false, "8.0.1": false, "": false, "x": false} {
		assert.Equal(t, old, tooOld(version), version)
	}
}
