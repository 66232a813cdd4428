----------------------------- MODULE AuditWalk -----------------------------
(* Audit.tla for the tests made from it: without what only the invariants look at, with one clock, so that a   *)
(* tombstone's life passes for all messages that are due; and no message becomes due between the lock of its   *)
(* row for an operation and the script: the relay takes the time of the lock for both.                         *)
EXTENDS Audit
Seen == <<R, D, lock, job, pol, fast, due, aged, nclaim, nops, left>>
OneClock == /\ aged' = aged \/ aged' = due
            /\ due' # due => \A w \in Workers : ~(job[w].pc = "begun" /\ job[w].kind = "op")
=============================================================================
