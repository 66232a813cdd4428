-------------------------------- MODULE Merge --------------------------------
(* Reschedules of one message, in an outbox. A producer may write another due time into one that is pending, *)
(* instead of a row of its own. A relay locks the row, asks Redis under the row's token, and tells the table; *)
(* it may die in between. Asked: which rows may a producer still change?                                     *)
EXTENDS Naturals, Sequences
CONSTANTS Rows, Merges, Last,  \* how many there are at the most; the last instant
          Notes,   \* the relay notes that it may try a row before it asks Redis, and such a row is changed no more
          Renames  \* what is changed gets another token
VARIABLES ops,     \* the reschedules, by number
          head,    \* the message's row: its token and due time
          redis,   \* what Redis has: token (0: nothing), due time; and the tokens under which it has done something
          job,     \* the relay's
          time, token, merges, published
vars == <<ops, head, redis, job, time, token, merges, published>>
Numbers == 1..Len(ops)
Idle == [of |-> 0, step |-> "-", token |-> 0, due |-> 0, answer |-> "-"]
Dues == 1..Last
Init == ops = <<>> /\ head = [token |-> 1, due |-> 1] /\ redis = [token |-> 1, due |-> 1, did |-> {}] /\ job = Idle /\ time = 0
        /\ token = 1 /\ merges = 0 /\ published = 0
Newest == Len(ops)
Mergeable == /\ Newest # 0 /\ ops[Newest].state = "pending" /\ job.of # Newest /\ (Notes => ~ops[Newest].noted) /\ merges < Merges
Add(d) == /\ ~Mergeable /\ Len(ops) < Rows /\ token' = token + 1
          /\ ops' = Append(ops, [token |-> token + 1, due |-> d, state |-> "pending", noted |-> FALSE])
          /\ UNCHANGED <<head, redis, job, time, merges, published>>
Merge(d) == /\ Mergeable /\ merges' = merges + 1 /\ token' = IF Renames THEN token + 1 ELSE token
            /\ ops' = [ops EXCEPT ![Newest].due = d, ![Newest].token = IF Renames THEN token + 1 ELSE @]
            /\ UNCHANGED <<head, redis, job, time, published>>
First == CHOOSE i \in Numbers : ops[i].state = "pending" /\ \A j \in Numbers : ops[j].state = "pending" => i <= j
Some == \E i \in Numbers : ops[i].state = "pending"
Note == Notes /\ Some /\ job = Idle /\ ~ops[First].noted /\ ops' = [ops EXCEPT ![First].noted = TRUE]
        /\ UNCHANGED <<head, redis, job, time, token, merges, published>>
Lock == Some /\ job = Idle /\ (Notes => ops[First].noted)
        /\ job' = [of |-> First, step |-> "locked", token |-> ops[First].token, due |-> ops[First].due, answer |-> "-"]
        /\ UNCHANGED <<ops, head, redis, time, token, merges, published>>
(* the script: its own effect, or the row's message moved, or nothing of it known *)
Ask == /\ job.step = "locked"
       /\ LET mine == job.token \in redis.did  there == redis.token = head.token
          IN /\ job' = [job EXCEPT !.step = "asked", !.answer = IF mine \/ there THEN "done" ELSE IF published # 0 THEN "late" ELSE "none"]
             /\ redis' = IF there /\ ~mine THEN [token |-> job.token, due |-> job.due, did |-> redis.did \cup {job.token}] ELSE redis
       /\ UNCHANGED <<ops, head, time, token, merges, published>>
Tell == /\ job.step = "asked" /\ job' = Idle
        /\ ops' = [ops EXCEPT ![job.of].state = job.answer]
        /\ head' = IF job.answer = "late" THEN head ELSE [token |-> ops[job.of].token, due |-> ops[job.of].due]
        /\ UNCHANGED <<redis, time, token, merges, published>>
Die == job # Idle /\ job' = Idle /\ UNCHANGED <<ops, head, redis, time, token, merges, published>>
Tick == time < Last /\ time' = time + 1 /\ UNCHANGED <<ops, head, redis, job, token, merges, published>>
Publish == /\ redis.token # 0 /\ redis.due <= time /\ published' = time /\ redis' = [redis EXCEPT !.token = 0, !.due = 0]
           /\ UNCHANGED <<ops, head, job, time, token, merges>>
Next == (\E d \in Dues : Add(d) \/ Merge(d)) \/ Note \/ Lock \/ Ask \/ Tell \/ Die \/ Tick \/ Publish
Spec == Init /\ [][Next]_vars
(* Nothing of the message is lost here, so Redis always knows it. *)
Known == \A i \in Numbers : ops[i].state # "none"
(* While nothing is under way, what waits in Redis is what the row says. *)
Agree == ~Some /\ redis.token # 0 => redis.token = head.token /\ redis.due = head.due
(* What said done is not published before the time that it asked for, by the last one that did. *)
Done == {i \in Numbers : ops[i].state = "done"}
NotEarly == published # 0 /\ ~Some /\ Done # {} =>
  LET i == CHOOSE i \in Done : \A j \in Done : j <= i IN published >= ops[i].due
=============================================================================
