----------------------------- MODULE AuditWalk -----------------------------
(* Audit.tla for the tests made from it: without what only the invariants look at, and with one clock, so that *)
(* a tombstone's life passes for all messages that are due.                                                    *)
EXTENDS Audit
Seen == <<R, D, lock, job, pol, fast, due, aged, nclaim, nops, left>>
OneClock == aged' = aged \/ aged' = due
=============================================================================
