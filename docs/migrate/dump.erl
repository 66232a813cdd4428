%% Prints what waits in RabbitMQ's plugin rabbitmq_delayed_message_exchange on this node, as lines for bridge schedule --batch.
%% It only reads: rabbitmqctl eval "$(cat dump.erl)" | grep '^{' > waiting.jsonl
Out = standard_io,
Table = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())),
Text = fun
  (_, {longstr, V}) -> V;
  (_, {table, V}) -> rabbit_json:encode(rabbit_misc:amqp_table(V));
  (_, {array, V}) -> rabbit_json:encode([iolist_to_binary(io_lib:format("~p", [E])) || {_, E} <- V]);
  (_, {_, V}) when is_binary(V) -> V;
  (_, {_, V}) -> iolist_to_binary(io_lib:format("~p", [V]))
end,
%% Up to RabbitMQ 3.12 an entry has a delivery, from 3.13 on a message container.
Parts = fun
  (D) when element(1, D) =:= delivery -> {element(3, element(5, D)), element(4, element(5, D))};
  (D) -> {mc:routing_keys(D), mc:protocol_state(mc:convert(mc_amqpl, D))}
end,
Line = fun({delay_entry, {delay_key, At, Exchange}, Delivery, Ref}) ->
  {resource, VHost, exchange, Name} = element(2, Exchange),
  {[Key | _], Raw} = Parts(Delivery),
  Content = rabbit_binary_parser:ensure_content_decoded(Raw),
  Properties = element(3, Content),
  Headers = case element(4, Properties) of undefined -> []; H -> H end,
  Own = [{N, Text(N, {T, V})} || {N, T, V} <- Headers, N =/= <<"x-delay">>],
  Kept = case element(2, Properties) of undefined -> Own; Type -> [{<<"content-type">>, Type} | Own] end,
  Digest = binary:encode_hex(crypto:hash(sha256, term_to_binary({VHost, Name, At, Ref}))),
  Id = case element(10, Properties) of undefined -> Digest; MessageId -> MessageId end,
  Due = list_to_binary(calendar:system_time_to_rfc3339(At, [{unit, millisecond}, {offset, "Z"}])),
  Body = iolist_to_binary(lists:reverse(element(6, Content))),
  io:format(Out, "~ts~n", [rabbit_json:encode(#{
    id => Id, topic => Key, at => Due, headers => maps:from_list(Kept), body_base64 => base64:encode(Body), conflict => <<"keep">>,
    tags => [<<"exchange:", Name/binary>>]
  })])
end,
ets:safe_fixtable(Table, true),
ets:foldl(fun(Entry, _) -> Line(Entry) end, ok, Table),
ets:safe_fixtable(Table, false).
