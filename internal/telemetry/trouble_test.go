package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var trouble Trouble
		assert.False(t, trouble.Over())
		assert.True(t, trouble.News("refused"))
		time.Sleep(time.Hour) //nolint:forbidigo // the clock is synctest's
		assert.False(t, trouble.News("refused"), "nothing has changed")
		assert.True(t, trouble.News("wrong password"))
		assert.True(t, trouble.News("refused"))
		assert.False(t, trouble.News("wrong password"), "they alternate")
		time.Sleep(sayAgain) //nolint:forbidigo // the clock is synctest's
		trouble.News("refused")
		assert.True(t, trouble.News("wrong password"))
		assert.True(t, trouble.Over())
		assert.False(t, trouble.Over())
		assert.True(t, trouble.News("refused"), "another one")
	})
}
