%% A server that echoes, by Erlang: four processes accept, and each connection has its own.
-mode(compile).

main([Port]) ->
    Options = [binary, {active, false}, {backlog, 128}, {reuseaddr, true}],
    {ok, Listener} = gen_tcp:listen(list_to_integer(Port), Options),
    [spawn_link(fun() -> accept(Listener) end) || _ <- lists:seq(1, 4)],
    receive after infinity -> ok end.

accept(Listener) ->
    {ok, Stream} = gen_tcp:accept(Listener),
    Serve = spawn(fun() -> receive go -> echo(Stream) end end),
    ok = gen_tcp:controlling_process(Stream, Serve),
    Serve ! go,
    accept(Listener).

echo(Stream) ->
    case gen_tcp:recv(Stream, 0) of
        {ok, Bytes} ->
            ok = gen_tcp:send(Stream, Bytes),
            echo(Stream);
        {error, closed} ->
            gen_tcp:close(Stream)
    end.
