-------------------------------- MODULE Repeat --------------------------------
(* One schedule of one identity, whose replies may be lost, and what happens after it was answered with     *)
(* "unknown": somebody looks, and the caller repeats it. Runs are on their way for any time; Redis refuses  *)
(* one whose not-after instant has passed. Meanwhile the message may be published or cancelled. Constants   *)
(* switch rules off, so that each can be shown to be needed.                                                *)
EXTENDS Naturals, FiniteSets
CONSTANTS MaxTime, Timeout, MaxRuns, MaxRepeats,
          Tomb,        \* how long a cancel remembers the token that it has ended
          Repeatable,  \* for how long after its start the call may have runs
          Settled,     \* "unknown" is answered only when no run that was sent can happen any more
          SameCall,    \* a repetition has the token of the call, and says that it is a second run
          MarkSecond,  \* what a second run creates is marked "maybe published"
          InTime       \* no run takes effect later than Repeatable
VARIABLES now, state, token, second, last, runs, sent, repeats, \* the caller
          msg, mark, tomb,                                      \* Redis: token in force (0: none), its mark, tombstones
          looked, cancelDone, published, unmarked               \* what others were told, copies at the broker
vars == <<now, state, token, second, last, runs, sent, repeats, msg, mark, tomb, looked, cancelDone, published, unmarked>>
redis == <<msg, mark, tomb>>
others == <<looked, cancelDone, published, unmarked>>
Tokens == 1 .. MaxRepeats + 1
Min(a, b) == IF a < b THEN a ELSE b
Init == /\ now = 0 /\ state = "calling" /\ token = 1 /\ second = FALSE /\ last = 0 /\ runs = {} /\ sent = 0 /\ repeats = 0
        /\ msg = 0 /\ mark = FALSE /\ tomb = [t \in Tokens |-> 0]
        /\ looked = FALSE /\ cancelDone = FALSE /\ published = 0 /\ unmarked = 0
(* last is the not-after instant of the last run: the next one leaves later, and is a second run *)
Send == LET until == IF InTime THEN Min(now + Timeout, Repeatable) ELSE now + Timeout IN
        /\ state = "calling" /\ sent < MaxRuns /\ (sent > 0 => now > last) /\ (InTime => now <= Repeatable)
        /\ runs' = runs \cup {[n |-> sent, token |-> token, second |-> second, until |-> until]}
        /\ sent' = sent + 1 /\ second' = TRUE /\ last' = until
        /\ UNCHANGED <<now, state, token, repeats, redis, others>>
Refused(r) == \/ now > r.until \/ msg # 0 \/ (r.second /\ tomb[r.token] > now)
Deliver(r) ==
  /\ runs' = runs \ {r}
  /\ IF Refused(r) THEN UNCHANGED <<msg, mark>> ELSE msg' = r.token /\ mark' = (r.second /\ MarkSecond)
  /\ \/ UNCHANGED state \* the reply is lost
     \/ now <= r.until /\ state = "calling" /\ r.n = sent - 1 /\ state' = "answered"
  /\ UNCHANGED <<now, token, second, last, sent, repeats, tomb, others>>
Lose(r) == runs' = runs \ {r} /\ UNCHANGED <<now, state, token, second, last, sent, repeats, redis, others>>
GiveUp == /\ state = "calling" /\ sent > 0 /\ (Settled => now > last) /\ state' = "unknown"
          /\ UNCHANGED <<now, token, second, last, runs, sent, repeats, redis, others>>
Repeat == /\ state = "unknown" /\ repeats < MaxRepeats /\ repeats' = repeats + 1 /\ state' = "calling" /\ looked' = FALSE
          /\ IF SameCall THEN UNCHANGED <<token, second>> ELSE token' = token + 1 /\ second' = FALSE
          /\ UNCHANGED <<now, last, runs, sent, redis, cancelDone, published, unmarked>>
Look == /\ state = "unknown" /\ msg = 0 /\ looked' = TRUE
        /\ UNCHANGED <<now, state, token, second, last, runs, sent, repeats, redis, cancelDone, published, unmarked>>
Cancel == /\ msg # 0 /\ msg' = 0 /\ mark' = FALSE /\ tomb' = [tomb EXCEPT ![msg] = now + Tomb]
          /\ cancelDone' = (cancelDone \/ ~mark)
          /\ UNCHANGED <<now, state, token, second, last, runs, sent, repeats, looked, published, unmarked>>
Publish == /\ msg # 0 /\ msg' = 0 /\ mark' = FALSE /\ published' = published + 1 /\ unmarked' = unmarked + (IF mark THEN 0 ELSE 1)
           /\ UNCHANGED <<now, state, token, second, last, runs, sent, repeats, tomb, looked, cancelDone>>
Tick == now < MaxTime /\ now' = now + 1 /\ UNCHANGED <<state, token, second, last, runs, sent, repeats, redis, others>>
Next == Send \/ GiveUp \/ Repeat \/ Look \/ Cancel \/ Publish \/ Tick \/ \E r \in runs : Deliver(r) \/ Lose(r)
Spec == Init /\ [][Next]_vars
(* who was told "not found" after "unknown" was told the truth: nothing comes but by a repetition *)
LookTrue == looked => msg = 0
(* a cancel that said done, and not "maybe published", is true ever after *)
CancelTrue == cancelDone => published = 0
(* a second copy is known as one *)
CopiesMarked == unmarked <= 1
===============================================================================
