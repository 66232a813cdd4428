package migrate_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// fill makes the plugin's table, as its source up to RabbitMQ 3.12 does, since the plugin itself is in no package. Deliveries are
// RabbitMQ's own.
const fill = `
Table = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())),
{atomic, ok} = mnesia:create_table(Table, [{record_name, delay_entry}, {attributes, [delay_key, delivery, ref]}, {type, bag}, {disc_copies, [node()]}]),
Name = rabbit_misc:r(<<"/">>, exchange, <<"delayed">>),
Exchange = setelement(2, erlang:make_tuple(5, undefined, [{1, exchange}]), Name),
lists:foreach(fun({At, Key, MessageId, Headers, Body}) ->
  Properties = [{message_id, MessageId} || MessageId =/= none] ++ [{headers, Headers}, {content_type, <<"application/json">>}],
  P = lists:foldl(fun
    ({message_id, V}, R) -> setelement(10, R, V);
    ({headers, V}, R) -> setelement(4, R, V);
    ({content_type, V}, R) -> setelement(2, R, V)
  end, list_to_tuple(['P_basic' | lists:duplicate(14, undefined)]), Properties),
  Delivery = rabbit_basic:delivery(false, false, rabbit_basic:message(Name, Key, P, Body), undefined),
  ok = mnesia:dirty_write(Table, {delay_entry, {delay_key, At, Exchange}, Delivery, make_ref()})
end, [
  {%d, <<"order.timeout">>, <<"order-42/timeout">>, [{<<"x-delay">>, signedint, 5000}, {<<"tries">>, long, 3}, {<<"who">>, longstr, <<"me">>}], <<"{\"order\":42}">>},
  {%d, <<"order.timeout">>, none, [], <<255, 0, 1>>}
]).`

// TestDump: what waits in a table like the plugin's is printed as lines that bridge schedule --batch takes.
func TestDump(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server, err := service.StartRabbitMQ(ctx, "")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	due := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
	require.NoError(t, server.RabbitEval(ctx, fmt.Sprintf(fill, due.UnixMilli(), due.UnixMilli()+1)))
	script, err := os.ReadFile("../../../../docs/migrate/dump.erl")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "dump-") //nolint:usetesting // RabbitMQ, as another user, could not go into the folders above that of the test.
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // RabbitMQ may run as another user.
	file := filepath.Join(dir, "waiting.jsonl")
	const toTerminal = "Out = standard_io,"
	require.Contains(t, string(script), toTerminal)
	toFile := fmt.Sprintf("{ok, Out} = file:open(%q, [write]),", file)
	require.NoError(t, server.RabbitEval(ctx, strings.Replace(string(script), toTerminal, toFile, 1)))

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := map[string]operate.Schedule{}
	for line := range strings.Lines(string(text)) {
		var m operate.Schedule
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		found[m.At] = m
	}
	require.Len(t, found, 2)
	first, second := found[operate.Stamp(due)], found[operate.Stamp(due.Add(time.Millisecond))]
	assert.Equal(t, "order-42/timeout", first.ID)
	assert.Equal(t, "order.timeout", first.Topic)
	assert.Equal(t, "keep", first.Conflict)
	assert.Equal(t, map[string]string{"tries": "3", "who": "me", "content-type": "application/json"}, first.Headers)
	assert.Equal(t, base64.StdEncoding.EncodeToString([]byte(`{"order":42}`)), first.BodyBase64)
	assert.Len(t, second.ID, 64, "without a message-id, a digest that is the same in each dump")
	assert.Equal(t, base64.StdEncoding.EncodeToString([]byte{255, 0, 1}), second.BodyBase64)
}
