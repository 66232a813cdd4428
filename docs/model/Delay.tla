------------------------------- MODULE Delay -------------------------------
(* One shard: schedule, claim, publish, settle, reclaim, cancel, reschedule, replace.       *)
(* A producer's script may run twice (the client resends after a timeout) and answers with  *)
(* the last run. A poller may pause or crash anywhere. Constants switch rules off, so that  *)
(* each rule can be shown to be needed.                                                     *)
EXTENDS Naturals, FiniteSets
CONSTANTS Pollers, Producers, MaxVer, MaxTok, MaxOps,
          MarkReclaimed,   \* reclaim and unknown outcomes leave a "maybe published" mark
          CheckToken,      \* settle checks its claim token
          OpMemory,        \* cancel leaves a short-lived tombstone: its own token and the schedule's token
          MarkRetried,     \* a message created by a repeated schedule is marked "maybe published"
          RefuseReplaceInFlight,
          QuietSecondReplace  \* the second run of a replace that meets another token changes nothing
VARIABLES msg, due, maybe, claims, nextTok, nextVer, pol, published, op, opDone, nops,
          accepted, cancelled, cancelledMaybe, replaced, answers
(* for the tests made from the model: all but what only the invariants look at *)
Seen == <<msg, due, maybe, claims, nextTok, nextVer, pol, op, opDone, nops, cancelled, cancelledMaybe, replaced>>
vars == <<msg, due, maybe, claims, nextTok, nextVer, pol, published, op, opDone, nops,
          accepted, cancelled, cancelledMaybe, replaced, answers>>
(* one id; msg = its stored version, 0 if none; due, maybe: BOOLEAN; claims: set of live tokens for the id *)
Idle == [pc |-> "idle", tok |-> 0, ver |-> 0]
NoOp == [kind |-> "none", runs |-> 0, ans |-> "none", ver |-> 0, hit |-> 0]
Init == /\ msg = 0 /\ due = FALSE /\ maybe = FALSE /\ claims = {} /\ nextTok = 1 /\ nextVer = 1
        /\ pol = [p \in Pollers |-> Idle] /\ published = {} /\ op = [c \in Producers |-> NoOp] /\ opDone = [c \in Producers |-> FALSE] /\ nops = 0
        /\ accepted = {} /\ cancelled = {} /\ cancelledMaybe = {} /\ replaced = {} /\ answers = {}
Start(c, k) ==
  /\ op[c].kind = "none" /\ nops < MaxOps /\ nops' = nops + 1 /\ opDone' = [opDone EXCEPT ![c] = FALSE]
  /\ (k \in {"schedule","replace"} => nextVer <= MaxVer)
  /\ op' = [op EXCEPT ![c] = [kind |-> k, runs |-> 0, ans |-> "none", ver |-> IF k \in {"schedule","replace"} THEN nextVer ELSE 0, hit |-> 0]]
  /\ nextVer' = IF k \in {"schedule","replace"} THEN nextVer + 1 ELSE nextVer
  /\ UNCHANGED <<msg,due,maybe,claims,nextTok,pol,published,accepted,cancelled,cancelledMaybe,replaced,answers>>
inFlight == msg # 0 /\ ~due
(* tokens that a cancel or a replace ended: their tombstones *)
Ended == cancelled \cup cancelledMaybe \cup replaced
RunSchedule(c) ==
   /\ op[c].kind = "schedule" /\ op[c].runs < 2
   /\ IF msg = 0 /\ OpMemory /\ op[c].ver \in Ended
      THEN /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = "created"] /\ UNCHANGED <<msg,due,maybe,accepted>>
      ELSE IF msg = 0 THEN /\ msg' = op[c].ver /\ due' = TRUE /\ maybe' = (MarkRetried /\ op[c].runs = 1)
                           /\ accepted' = accepted \cup {op[c].ver} /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = "created"]
      ELSE /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = IF msg = op[c].ver \/ (op[c].runs = 1 /\ OpMemory /\ op[c].ver \in Ended) THEN "created"
                                                           ELSE IF op[c].runs = 0 THEN "duplicate" ELSE "not its own"] \* duplicate, or unknown if it came after the call began
           /\ UNCHANGED <<msg,due,maybe,accepted>>
   /\ UNCHANGED <<claims,nextTok,nextVer,pol,published,opDone,nops,cancelled,cancelledMaybe,replaced,answers>>
RunReplace(c) ==
   /\ op[c].kind = "replace" /\ op[c].runs < 2
   /\ IF msg = op[c].ver \/ (OpMemory /\ op[c].ver \in Ended) \/ (msg # 0 /\ op[c].runs = 1 /\ QuietSecondReplace) \/ (msg # 0 /\ inFlight /\ RefuseReplaceInFlight)
      THEN /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = IF msg = op[c].ver \/ (OpMemory /\ op[c].ver \in Ended) THEN "created"
                                                           ELSE IF op[c].runs = 1 /\ QuietSecondReplace THEN "unknown" ELSE "toolate"]
           /\ UNCHANGED <<msg,due,maybe,accepted,replaced>>
      ELSE /\ msg' = op[c].ver /\ due' = TRUE /\ maybe' = (maybe \/ (MarkRetried /\ op[c].runs = 1)) /\ accepted' = accepted \cup {op[c].ver}
           /\ replaced' = IF msg = 0 THEN replaced ELSE replaced \cup {msg}
           /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = "created"]
   /\ UNCHANGED <<claims,nextTok,nextVer,pol,published,opDone,nops,cancelled,cancelledMaybe,answers>>
RunCancel(c) ==
   /\ op[c].kind = "cancel" /\ op[c].runs < 2
   /\ IF op[c].runs = 1 /\ opDone[c] /\ OpMemory
      THEN /\ op' = [op EXCEPT ![c].runs = @+1] /\ UNCHANGED <<msg,due,maybe,opDone,cancelled,cancelledMaybe>>
      ELSE IF msg = 0 THEN /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = "notfound"] /\ UNCHANGED <<msg,due,maybe,opDone,cancelled,cancelledMaybe>>
      ELSE IF due THEN /\ op' = [op EXCEPT ![c].runs = @+1, ![c].hit = msg, ![c].ans = IF maybe THEN "maybe" ELSE "done"]
                       /\ cancelled' = IF maybe THEN cancelled ELSE cancelled \cup {msg}
                       /\ cancelledMaybe' = IF maybe THEN cancelledMaybe \cup {msg} ELSE cancelledMaybe
                       /\ msg' = 0 /\ due' = FALSE /\ maybe' = FALSE /\ opDone' = [opDone EXCEPT ![c] = TRUE]
      ELSE /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = "toolate"] /\ UNCHANGED <<msg,due,maybe,opDone,cancelled,cancelledMaybe>>
   /\ UNCHANGED <<claims,nextTok,nextVer,pol,published,nops,accepted,replaced,answers>>
Reply(c) ==
  /\ op[c].kind # "none" /\ op[c].runs > 0 /\ answers' = answers \cup {[kind |-> op[c].kind, ans |-> op[c].ans, hit |-> op[c].hit]} /\ op' = [op EXCEPT ![c] = NoOp] /\ opDone' = [opDone EXCEPT ![c] = FALSE]
  /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,pol,published,nops,accepted,cancelled,cancelledMaybe,replaced>>
(* the first run never reached Redis; its not-after instant has passed *)
Lost(c) ==
  /\ op[c].kind # "none" /\ op[c].runs = 0 /\ op' = [op EXCEPT ![c].runs = 1]
  /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,pol,published,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Claim(p) == /\ pol[p].pc = "idle" /\ due /\ nextTok <= MaxTok
            /\ due' = FALSE /\ claims' = claims \cup {nextTok} /\ nextTok' = nextTok + 1
            /\ pol' = [pol EXCEPT ![p] = [pc |-> "claimed", tok |-> nextTok, ver |-> msg]]
            /\ UNCHANGED <<msg,maybe,nextVer,published,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Publish(p) == /\ pol[p].pc = "claimed" /\ published' = published \cup {pol[p].ver}
              /\ pol' = [pol EXCEPT ![p].pc = "acked"]
              /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Owns(p) == pol[p].tok \in claims
Ack(p) == /\ pol[p].pc = "acked"
          /\ IF Owns(p) \/ ~CheckToken THEN msg' = 0 /\ due' = FALSE /\ maybe' = FALSE /\ claims' = claims \ {pol[p].tok}
             ELSE UNCHANGED <<msg,due,maybe,claims>>
          /\ pol' = [pol EXCEPT ![p] = Idle]
          /\ UNCHANGED <<nextTok,nextVer,published,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
(* outcome unknown: the broker may or may not have it; the message goes back *)
Unknown(p) == /\ pol[p].pc = "claimed" /\ \E b \in BOOLEAN : published' = IF b THEN published \cup {pol[p].ver} ELSE published
              /\ IF Owns(p) \/ ~CheckToken THEN due' = TRUE /\ maybe' = (maybe \/ MarkReclaimed) /\ claims' = claims \ {pol[p].tok} ELSE UNCHANGED <<due,maybe,claims>>
              /\ pol' = [pol EXCEPT ![p] = Idle]
              /\ UNCHANGED <<msg,nextTok,nextVer,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Crash(p) == /\ pol[p].pc # "idle" /\ pol' = [pol EXCEPT ![p] = Idle]
            /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,published,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Reclaim == /\ \E t \in claims : claims' = claims \ {t}
           /\ due' = TRUE /\ maybe' = (maybe \/ MarkReclaimed)
           /\ UNCHANGED <<msg,nextTok,nextVer,pol,published,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Next == \/ \E c \in Producers : \/ \E k \in {"schedule","replace","cancel"} : Start(c, k)
                                \/ RunSchedule(c) \/ RunReplace(c) \/ RunCancel(c) \/ Lost(c) \/ Reply(c)
        \/ Reclaim
        \/ \E p \in Pollers : Claim(p) \/ Publish(p) \/ Ack(p) \/ Unknown(p) \/ Crash(p)
Spec == Init /\ [][Next]_vars
(* I11: a cancel that said done is true ever after *)
CancelTrue == cancelled \cap published = {}
(* the answer matches what the operation did *)
AnswerTrue == \A a \in answers : a.kind = "cancel" /\ a.hit # 0 => a.ans \in {"done","maybe"}
(* I1: accepted => waiting, in flight under a live claim, published, cancelled or replaced *)
NoLoss == \A v \in accepted : v \in published \/ v \in cancelled \/ v \in cancelledMaybe \/ v \in replaced
             \/ (msg = v /\ (due \/ claims # {}))
(* I6 *)
Body == (due => msg # 0) /\ (claims # {} /\ ~due => msg # 0)
=============================================================================
