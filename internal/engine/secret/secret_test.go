package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "hunter2-hunter2"

// TestNeverPrinted prints secrets in every way that a program has.
func TestNeverPrinted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password), 0o600))
	type config struct {
		User     string
		Password secret.Secret
		Pointer  *secret.Secret
	}
	for _, s := range []secret.Secret{secret.Value(password), secret.File(file)} {
		c := config{User: "u", Password: s, Pointer: &s}
		var out bytes.Buffer
		for _, value := range []any{s, &s, c, &c, []secret.Secret{s}, map[string]secret.Secret{"s": s}, errors.Join(fmt.Errorf("%v", s))} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				_, _ = fmt.Fprintf(&out, verb+"\n", value)
			}
			for _, handler := range []slog.Handler{
				slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil),
			} {
				slog.New(handler).Info("login", "secret", value, slog.Group("group", "secret", value))
			}
			encoded, _ := json.Marshal(value)
			out.Write(encoded)
		}
		require.NotContains(t, out.String(), password)
		require.NotContains(t, out.String(), fmt.Sprintf("%x", password))
		require.Contains(t, out.String(), secret.Masked)
	}
}

func TestReveal(t *testing.T) {
	t.Parallel()
	var none secret.Secret
	require.False(t, none.IsSet())
	require.Empty(t, none.String())
	value, err := none.Reveal()
	require.NoError(t, err)
	require.Empty(t, value)

	value, err = secret.Value(password + "\n").Reveal()
	require.NoError(t, err)
	require.Equal(t, password+"\n", value, "a value is taken as it is")

	file := filepath.Join(t.TempDir(), "password")
	s := secret.File(file)
	require.True(t, s.IsSet())
	_, err = s.Reveal()
	require.ErrorIs(t, err, os.ErrNotExist)
	for content, want := range map[string]string{
		password: password, password + "\n": password, password + "\r\n": password, " a b ": " a b ", "": "",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		value, err = s.Reveal()
		require.NoError(t, err)
		require.Equal(t, want, value, "read again each time")
	}
}
