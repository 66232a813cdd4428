------------------------------- MODULE Layout -------------------------------
(* Growing the shards while producers run: one id, its home in the old and in the new layout.  *)
(* Publishing is abstracted to "gone". Constants switch the rules of design.md section 11 off. *)
EXTENDS Naturals
CONSTANTS Clients, MaxOps,
          FenceFirst,      \* old shards are fenced before the new layout is published
          RefuseReads,     \* a fenced shard refuses old callers' cancels and reads too
          AskOldHome       \* schedule looks into the old home before it creates in the new one
VARIABLES old, new, fenced, layout, intent, cl, nops, bad
vars == <<old, new, fenced, layout, intent, cl, nops, bad>>
(* for the tests made from the model: all but what only the invariants look at *)
Seen == <<old, new, fenced, layout, intent, [c \in Clients |-> <<cl[c].pc, cl[c].epoch>>], nops>>
Idle == [pc |-> "idle", epoch |-> 1, absent |-> FALSE]
Init == old = FALSE /\ new = FALSE /\ fenced = FALSE /\ layout = 1 /\ intent = FALSE
        /\ cl = [c \in Clients |-> Idle] /\ nops = 0 /\ bad = "no"
Set(c, pc) == cl' = [cl EXCEPT ![c].pc = pc]
Admin == \/ ~intent /\ intent' = TRUE /\ UNCHANGED <<fenced, layout>>
         \/ intent /\ ~fenced /\ fenced' = TRUE /\ UNCHANGED <<layout, intent>>
         \/ intent /\ layout = 1 /\ (fenced \/ ~FenceFirst) /\ layout' = 2 /\ UNCHANGED <<fenced, intent>>
AdminStep == Admin /\ UNCHANGED <<old, new, cl, nops, bad>>
Begin(c, pc) == /\ cl[c].pc = "idle" /\ nops < MaxOps /\ nops' = nops + 1
                /\ cl' = [cl EXCEPT ![c].pc = pc, ![c].absent = (~old /\ ~new)]
                /\ UNCHANGED <<old, new, fenced, layout, intent, bad>>
(* a refused caller reloads; others may, at any time *)
Reload(c) == /\ cl[c].pc \in {"reload", "idle"} /\ cl' = [cl EXCEPT ![c].epoch = layout, ![c].pc = "idle"]
             /\ UNCHANGED <<old, new, fenced, layout, intent, nops, bad>>
Done(c) == cl' = [cl EXCEPT ![c].pc = "idle"]
(* every running operation notes whether the id was absent everywhere at some instant *)
See(o, n, next) == cl' = [c \in Clients |-> [next[c] EXCEPT !.absent = @ \/ (~o /\ ~n)]]
Schedule(c) ==
  /\ cl[c].pc = "schedule"
  /\ IF cl[c].epoch = 1
     THEN IF fenced THEN Set(c, "reload") /\ UNCHANGED <<old, new>>
          ELSE IF old THEN Done(c) /\ UNCHANGED <<old, new>>
          ELSE old' = TRUE /\ new' = new /\ Done(c)
     ELSE IF AskOldHome /\ old THEN Done(c) /\ UNCHANGED <<old, new>>
          ELSE Set(c, "create") /\ UNCHANGED <<old, new>>
  /\ UNCHANGED <<fenced, layout, intent, nops, bad>>
Create(c) == /\ cl[c].pc = "create" /\ new' = TRUE /\ old' = old /\ Done(c)
             /\ UNCHANGED <<fenced, layout, intent, nops, bad>>
NotFound(c) == IF cl[c].absent THEN bad ELSE "cancel said not found, the id was there all along"
Cancel(c) ==
  /\ cl[c].pc = "cancel"
  /\ IF cl[c].epoch = 1
     THEN IF fenced /\ RefuseReads THEN Set(c, "reload") /\ UNCHANGED <<old, new, bad>>
          ELSE IF old THEN old' = FALSE /\ new' = new /\ See(FALSE, new, [cl EXCEPT ![c].pc = "idle"]) /\ bad' = bad
          ELSE Done(c) /\ bad' = NotFound(c) /\ UNCHANGED <<old, new>>
     ELSE IF old THEN old' = FALSE /\ new' = new /\ See(FALSE, new, [cl EXCEPT ![c].pc = "idle"]) /\ bad' = bad
          ELSE Set(c, "cancelNew") /\ UNCHANGED <<old, new, bad>>
  /\ UNCHANGED <<fenced, layout, intent, nops>>
CancelNew(c) ==
  /\ cl[c].pc = "cancelNew"
  /\ IF new THEN new' = FALSE /\ See(old, FALSE, [cl EXCEPT ![c].pc = "idle"]) /\ bad' = bad
     ELSE Done(c) /\ bad' = NotFound(c) /\ UNCHANGED new
  /\ UNCHANGED <<old, fenced, layout, intent, nops>>
Publish == \/ old /\ old' = FALSE /\ new' = new /\ See(FALSE, new, cl) /\ UNCHANGED <<fenced, layout, intent, nops, bad>>
           \/ new /\ new' = FALSE /\ old' = old /\ See(old, FALSE, cl) /\ UNCHANGED <<fenced, layout, intent, nops, bad>>
Next == AdminStep \/ Publish \/ \E c \in Clients : Begin(c, "schedule") \/ Begin(c, "cancel") \/ Reload(c)
                                  \/ Schedule(c) \/ Create(c) \/ Cancel(c) \/ CancelNew(c)
Spec == Init /\ [][Next]_vars
OneMessage == ~(old /\ new)          \* I10
Truth == bad = "no"                  \* I11
=============================================================================
