------------------------------- MODULE Clock -------------------------------
(* One message id in one shard, two producers that schedule and cancel, and the clock of    *)
(* Redis, which is set while their calls are under way. Delay.tla has what becomes of a      *)
(* message; here is what bounds a run of a call: the span of Redis' clock in which it may    *)
(* take effect, when its next run leaves, how long tombstones live. A run may lie on the way *)
(* for up to Late ticks, its answer may be lost.                                            *)
EXTENDS Integers, FiniteSets
CONSTANTS Scheduler, Canceller, MaxOps,
          Last,       \* ticks of the story
          Window,     \* ticks for which a run may take effect
          Late,       \* ticks after which nothing of a run is on its way any more
          Life,       \* ticks for which a tombstone lives, by Redis' clock
          Jumps,      \* how often Redis' clock is set
          Forth, Back, \* by how much
          NotBefore,  \* a run takes no effect before the instant for which it was sent
          Ends,       \* a further run takes none once a tombstone of an earlier one may have ended
          Steady      \* no tombstone goes within Life of a step of the clock
Producers == {Scheduler, Canceller}
VARIABLES now, off, jumps, jumped, msg, gone, net, op, seen, nextOp, ended, bad
vars == <<now, off, jumps, jumped, msg, gone, net, op, seen, nextOp, ended, bad>>
(* now: ticks that have passed; now + off is Redis' clock. msg: the operation that has        *)
(* scheduled what waits, 0 if nothing. gone: tombstones. net: runs on their way. seen: what   *)
(* each producer takes for off. ended: schedules whose message was cancelled.                *)
clock == now + off
Idle == [n |-> 0, kind |-> "none", began |-> 0, state |-> "idle", run |-> 0, oldest |-> 0, maybe |-> FALSE, settled |-> 0, did |-> FALSE]
Init == /\ now = 0 /\ off = 0 /\ jumps = 0 /\ jumped = -Life /\ msg = 0 /\ gone = {} /\ net = {} /\ op = [c \in Producers |-> Idle]
        /\ seen = [c \in Producers |-> 0] /\ nextOp = 1 /\ ended = {} /\ bad = "none"
Least(a, b) == IF a < b THEN a ELSE b
Tombstone(t) == \E g \in gone : g.token = t

Tick == now < Last /\ now' = now + 1 /\ net' = {r \in net : r.left + Late > now}
        /\ UNCHANGED <<off, jumps, jumped, msg, gone, op, seen, nextOp, ended, bad>>
Jump == /\ jumps < Jumps /\ off' \in {off + d : d \in Forth} \cup {off - d : d \in Back} /\ jumps' = jumps + 1 /\ jumped' = now
        /\ UNCHANGED <<now, msg, gone, net, op, seen, nextOp, ended, bad>>
Purge == /\ \E g \in gone : g.until <= clock
         /\ ~Steady \/ now - jumped >= Life
         /\ gone' = {g \in gone : g.until > clock}
         /\ UNCHANGED <<now, off, jumps, jumped, msg, net, op, seen, nextOp, ended, bad>>

Start(c, k) ==
  /\ op[c].state = "idle" /\ nextOp <= MaxOps /\ (k = "cancel") = (c = Canceller) /\ (nextOp = 2) = (c = Canceller) /\ nextOp' = nextOp + 1
  /\ op' = [op EXCEPT ![c] = [Idle EXCEPT !.n = nextOp, !.kind = k, !.began = now, !.state = "unsent"]]
  /\ UNCHANGED <<now, off, jumps, jumped, msg, gone, net, seen, ended, bad>>
(* What has certainly not happened is sent as before; what may have, as a further run, once it no longer can, *)
(* after Redis was asked for the time.                                                                       *)
Send(c) ==
  LET o == op[c] second == o.maybe
      reading == IF second THEN off ELSE seen[c]
      window == IF second THEN Least(Window, o.began + Life - 1 - now) ELSE Window
      from == now + reading
      to == IF second /\ Ends THEN Least(from + window, o.oldest + Life - 1) ELSE from + window
  IN /\ o.state = "unsent" /\ (second => now > o.settled /\ window >= 0)
     /\ net' = net \cup {[n |-> o.n, c |-> c, kind |-> o.kind, run |-> o.run + 1, second |-> second, from |-> from, to |-> to, left |-> now]}
     /\ op' = [op EXCEPT ![c].state = "sent", ![c].run = @ + 1, ![c].settled = IF second THEN now + window ELSE now + Window,
                         ![c].oldest = IF second THEN Least(o.oldest, from) ELSE from]
     /\ seen' = [seen EXCEPT ![c] = reading]
     /\ UNCHANGED <<now, off, jumps, jumped, msg, gone, nextOp, ended, bad>>
(* No answer came: it may have happened. *)
Miss(c) == /\ op[c].state = "sent" /\ now > op[c].settled /\ op' = [op EXCEPT ![c].state = "unsent", ![c].maybe = TRUE]
           /\ UNCHANGED <<now, off, jumps, jumped, msg, gone, net, seen, nextOp, ended, bad>>
(* The call ends as unknown, or as forgotten. *)
GiveUp(c) == /\ op[c].state = "unsent" /\ op[c].maybe /\ now > op[c].settled /\ op' = [op EXCEPT ![c] = Idle]
             /\ UNCHANGED <<now, off, jumps, jumped, msg, gone, net, seen, nextOp, ended, bad>>

IsOpen(r) == op[r.c].n = r.n
Waits(r) == IsOpen(r) /\ op[r.c].state = "sent" /\ op[r.c].run = r.run
(* What a run finds and does: the message after it, new tombstones, whether it has had an effect, the answer. *)
Effect(r) ==
  IF r.kind = "cancel"
  THEN IF r.second /\ Tombstone(r.n) THEN [msg |-> msg, gone |-> {}, ends |-> {}, did |-> FALSE, ans |-> "done"]
       ELSE IF msg = 0 THEN [msg |-> 0, gone |-> {}, ends |-> {}, did |-> FALSE, ans |-> "notfound"]
       ELSE [msg |-> 0, gone |-> {r.n, msg}, ends |-> {msg}, did |-> TRUE, ans |-> "done"]
  ELSE IF r.second /\ Tombstone(r.n) THEN [msg |-> msg, gone |-> {}, ends |-> {}, did |-> FALSE, ans |-> "created"]
       ELSE IF msg = 0 THEN [msg |-> r.n, gone |-> {}, ends |-> {}, did |-> TRUE, ans |-> "created"]
       ELSE [msg |-> msg, gone |-> {}, ends |-> {}, did |-> FALSE, ans |-> IF msg = r.n THEN "created" ELSE "duplicate"]
Execute(r) ==
  LET isTimely == clock <= r.to /\ (NotBefore => clock >= r.from)
      e == IF isTimely THEN Effect(r) ELSE [msg |-> msg, gone |-> {}, ends |-> {}, did |-> FALSE, ans |-> "refused"]
  IN /\ r \in net /\ net' = net \ {r}
     /\ msg' = e.msg /\ gone' = gone \cup {[token |-> t, until |-> clock + Life] : t \in e.gone} /\ ended' = ended \cup e.ends
     /\ \E isHeard \in {FALSE} \cup (IF Waits(r) THEN {TRUE} ELSE {}) :
          LET o == op[r.c]
              did == [o EXCEPT !.did = @ \/ e.did]
          IN /\ op' = [op EXCEPT ![r.c] = IF ~IsOpen(r) THEN o ELSE IF ~isHeard THEN did
                         ELSE IF e.ans # "refused" THEN Idle
                         ELSE IF Ends /\ r.second /\ clock > o.oldest + Life - 1 THEN Idle \* forgotten
                         ELSE [did EXCEPT !.state = "unsent"]]
             /\ seen' = IF isHeard THEN [seen EXCEPT ![r.c] = off] ELSE seen
             /\ bad' = IF e.did /\ ~IsOpen(r) THEN "after its call has ended"
                       ELSE IF r.kind = "schedule" /\ e.did /\ r.n \in ended THEN "back after it was cancelled"
                       ELSE IF isHeard /\ r.kind = "cancel" /\ e.ans = "notfound" /\ o.did THEN "not found, though it was done"
                       ELSE IF isHeard /\ r.kind = "cancel" /\ e.did /\ o.did THEN "two messages by one cancel"
                       ELSE bad
     /\ UNCHANGED <<now, off, jumps, jumped, nextOp>>
Next == \/ Tick \/ Jump \/ Purge
        \/ \E c \in Producers : \/ \E k \in {"schedule", "cancel"} : Start(c, k)
                                \/ Send(c) \/ Miss(c) \/ GiveUp(c)
        \/ \E r \in net : Execute(r)
Spec == Init /\ [][Next]_vars
(* A cancel that was done is not told as not found. *)
Told == bad # "not found, though it was done"
(* Nothing of a call takes effect once it has ended. *)
Settled == bad # "after its call has ended"
(* What was cancelled stays so, and a cancel takes one message. *)
Once == bad \notin {"back after it was cancelled", "two messages by one cancel"}
=============================================================================
