------------------------------ MODULE Restored ------------------------------
(* Audit.tla, and a Redis that is put back to an earlier state: it has a message under a token that is in force no  *)
(* more. "renew" puts what the row says in its place, "remove" takes away what has ended. Its queue is paused until  *)
(* an audit of everything has been through.                                                                         *)
EXTENDS Audit
CONSTANTS
  Renews,       \* a message under a token from before gives way to its row
  RenewMarks,   \* what is put so is marked, if it was due and its row is stored, or its row says so
  RenewKeeps,   \* and if the one before was
  RenewTells,   \* the row learns of the mark
  RenewObeys,   \* where the row's own token has ended in Redis, nothing is put
  RenewSeen,    \* only what waits under the token that was seen gives way
  RenewTomb,    \* which leaves a tombstone
  RenewWaits,   \* not while an operation is pending
  RenewLocks,   \* under the row's lock
  RemovesPast,  \* what waits under a token that its row had before is removed, too, if the row has ended
  Pauses,       \* the queue is paused
  Patient       \* until no row is left to the relay
VARIABLES seen, paused, past, untold
more == <<seen, paused, past, untold>>
InitR == Init /\ seen = [w \in Workers |-> 0] /\ paused = FALSE /\ past = [is |-> FALSE, of |-> Empty] /\ untold = FALSE
Backup == ~past.is /\ left.redis > 0 /\ past' = [is |-> TRUE, of |-> R] /\ UNCHANGED <<vars, seen, paused, untold>>
(* It was away for a minute: longer than a script may be late, and than a tombstone lives. Who has an answer goes on with it. *)
Restore == /\ left.redis > 0 /\ past.is /\ R' = past.of /\ left' = [left EXCEPT !.redis = @ - 1] /\ paused' = Pauses
           /\ pol' = [p \in Pollers |-> Free] /\ fast' = [t \in Toks |-> IF fast[t] = "under way" THEN "over" ELSE fast[t]]
           /\ job' = [w \in Workers |-> IF job[w].pc \in {"begun", "renews"} THEN Idle ELSE job[w]]
           /\ lock' = IF \E w \in Workers : lock = w /\ job[w].pc \in {"begun", "renews"} THEN 0 ELSE lock
           /\ aged' = aged \cup due
           \* A copy went out last, its row was not told, and the message is back as if nothing had been: nobody can know.
           /\ untold' = (Live /\ copies[D.life] > 0 /\ past.of.tok # 0 /\ (past.of.tok = D.tok \/ Asked))
           /\ UNCHANGED <<Rb, D, Db, due, older, nclaim, nops, copies, unmarked, begun, asked, cli, bad, seen, past>>
Past == R.tok = 1 /\ D.tok = 2
HasEnded == Row(R.tok) <= D.life /\ D.fate[Row(R.tok)] \in {"published", "cancelled"}
Removable == R.tok # 0 /\ R.place = "waits" /\ HasEnded /\ (RemovesPast \/ ~Past)
(* the audit of everything has been through *)
Resume == /\ paused /\ paused' = FALSE /\ UNCHANGED <<vars, seen, past, untold>>
          /\ IF Asked THEN ~Patient ELSE ~Removable /\ ~(Renews /\ Live /\ R.tok \notin {0, D.tok})
BeginRenew(w) ==
  /\ Renews /\ job[w].pc = "idle" /\ lock = 0 /\ Live /\ R.tok \notin {0, D.tok} /\ (RenewWaits => ~Asked)
  /\ job' = [job EXCEPT ![w] = [pc |-> "renews", kind |-> "renew", tok |-> D.tok, st |-> D.fate[D.life], maybe |-> D.maybe, ans |-> "-"]]
  /\ seen' = [seen EXCEPT ![w] = R.tok] /\ lock' = IF RenewLocks THEN w ELSE 0
  /\ UNCHANGED <<R, Rb, D, Db, pol, fast, bad, rest, paused, past, untold>>
RunRenew(w) ==
  LET j == job[w]  t == j.tok  mark == (RenewKeeps /\ R.mark) \/ (RenewMarks /\ MayBeOut(j))
      ran(ans) == job' = [job EXCEPT ![w].pc = "renewed", ![w].ans = ans]
  IN /\ j.pc = "renews"
     /\ CASE R.tok = t -> ran(IF R.mark THEN "maybe" ELSE "mine") /\ UNCHANGED <<R, bad>>
          [] R.tok # t /\ RenewObeys /\ Trace(t) # "-" -> ran(Trace(t)) /\ UNCHANGED <<R, bad>>
          [] R.tok # t /\ ~(RenewObeys /\ Trace(t) # "-") /\ (R.tok = 0 \/ (RenewSeen /\ R.tok # seen[w])) -> ran("none") /\ UNCHANGED <<R, bad>>
          [] R.tok # t /\ ~(RenewObeys /\ Trace(t) # "-") /\ R.tok # 0 /\ ~(RenewSeen /\ R.tok # seen[w]) ->
               IF R.place = "flight" THEN ran("flies") /\ UNCHANGED <<R, bad>>
               ELSE /\ R' = [R EXCEPT !.tok = t, !.place = "waits", !.mark = mark, !.tomb[R.tok] = IF RenewTomb THEN "m" ELSE @]
                    /\ ran(IF mark THEN "maybe" ELSE "mine")
                    /\ bad' = IF Under(t) \/ (t = 2 /\ Asked /\ D.op.kind = "move") \/ (mark /\ D.fate[Row(t)] = "published") THEN bad ELSE "back after its end"
     /\ UNCHANGED <<Rb, D, Db, lock, pol, fast, rest, more>>
FinishRenew(w) ==
  LET j == job[w] IN
  /\ j.pc = "renewed" /\ (lock = w \/ ~RenewLocks) /\ lock' = (IF lock = w THEN 0 ELSE lock) /\ job' = [job EXCEPT ![w] = Idle]
  /\ D' = IF ~Under(j.tok) THEN D
          ELSE IF j.ans \in {"mine", "maybe"} THEN [D EXCEPT !.fate[D.life] = "stored", !.maybe = @ \/ (RenewTells /\ j.ans = "maybe")]
          ELSE IF j.ans = "flies" THEN [D EXCEPT !.maybe = TRUE] ELSE [D EXCEPT !.fate[D.life] = Fate(j.ans)]
  /\ UNCHANGED <<R, Rb, Db, pol, fast, bad, rest, more>>
(* the row that had that token has ended: it lives no more, whenever it was read *)
Remove == /\ Removable
          /\ R' = [R EXCEPT !.tok = 0, !.tomb[R.tok] = IF D.fate[Row(R.tok)] = "published" THEN "p" ELSE "c"]
          /\ UNCHANGED <<Rb, D, Db, lock, job, pol, fast, bad, rest, more>>
(* a tombstone outlives the script of a renewal, too *)
Forgets(t) == Expire(t) /\ ~\E w \in Workers : job[w].pc = "renews" /\ t \in {job[w].tok, seen[w]}
NextR ==
  \/ Backup \/ Restore \/ Resume \/ Remove \/ \E w \in Workers : BeginRenew(w) \/ RunRenew(w) \/ FinishRenew(w)
  \/ /\ UNCHANGED more
     /\ \/ Commit \/ Submit("cancel") \/ Submit("move") \/ OpByTable \/ Reclaim
        \/ \E t \in Toks : FastPath(t) \/ Forgets(t) \/ Time(t)
        \/ \E w \in Workers : Begin(w, "bring") \/ Begin(w, "op") \/ RunBring(w) \/ RunOp(w) \/ Finish(w) \/ LoseLock(w) \/ Abandon(w)
                              \/ Tell(w) \/ Forget(w) \/ \E t \in Toks : ReadLedger(w, t)
        \/ \E p \in Pollers : (~paused /\ Claim(p)) \/ Publish(p) \/ Settle(p)
SpecR == InitR /\ [][NextR]_<<vars, more>>
MarkedR == Marked \/ untold
CancelTrueR == CancelTrue \/ untold
(* After the pause nothing waits for the time that it had before a reschedule. *)
InForce == (left.redis = 0 /\ ~paused /\ R.tok = 1 /\ R.place = "waits") => D.tok # 2 \/ untold
=============================================================================
