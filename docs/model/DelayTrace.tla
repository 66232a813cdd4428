----------------------------- MODULE DelayTrace -----------------------------
(* What happened to one id in the simulation (internal/sim/trace_test.go) must be a behaviour of Delay. Each step of a trace is   *)
(* a step of Delay, or one of the few that Delay leaves out and this module adds, and Redis must have afterwards what the trace    *)
(* says. A trace is accepted if it is consumed to its end: Next prints how far each trace comes, and test/models reads that.       *)
EXTENDS Delay, Integers, Sequences, TLC
CONSTANTS Traces
VARIABLES trace, steps, i,
          at,     \* the due time in force, in milliseconds
          taken,  \* by claim: the message that it took, and its due time
          gone,   \* the claims of which their pollers were told that they have ended; it may be another id that has
          moved,  \* the messages that were rescheduled: their first tokens have ended, and left tombstones
          open    \* the calls that are under way: none that was answered "unknown" may take effect before it is repeated
e == steps[i]
allVars == <<vars, trace, steps, i, at, taken, gone, moved, open>>
View == <<vars, trace, i, at, taken, gone, moved, open>>
InitT == /\ Init /\ i = 1 /\ at = 0 /\ taken = [p \in Pollers |-> [ver |-> 0, due |-> 0]] /\ gone = {} /\ moved = {} /\ open = {}
         /\ \E all \in {Traces} : trace \in 1..Len(all) /\ steps = all[trace] \* TLC would read all of them for each.
(* Redis has this after the step. *)
Has == msg' = e.has /\ due' = e.waits /\ maybe' = e.marked
(* The due time in force does not change, also not by a retry. *)
SameDue == (e.waits => e.due = at) /\ at' = at
StartT == /\ e.is = "start" /\ Start(e.call, e.verb) /\ open' = open \cup {e.call} /\ UNCHANGED <<at, taken>>
RepeatT == /\ e.is = "repeat" /\ op[e.call].kind # "none" /\ e.call \notin open /\ open' = open \cup {e.call} /\ UNCHANGED <<vars, at, taken>>
(* Delay has no reschedule: it is a cancel that leaves the message, with another due time. *)
RunReschedule(c) ==
  /\ op[c].kind = "reschedule"
  /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = IF op[c].runs = 1 /\ opDone[c] THEN @ ELSE IF msg = 0 THEN "notfound" ELSE IF due THEN IF maybe THEN "maybe" ELSE "done" ELSE "toolate"]
  /\ opDone' = [opDone EXCEPT ![c] = @ \/ (msg # 0 /\ due)]
  /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,pol,published,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
RunMoved(c) ==
  /\ op[c].runs < 2 /\ op' = [op EXCEPT ![c].runs = @+1, ![c].ans = "created"]
  /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,pol,published,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
(* What the script says, where before is what it has found. *)
Says(c) ==
  LET ans == op'[c].ans IN
  CASE e.says = "created" -> ans = "created" /\ (e.verb = "replace" => msg \in {0, op[c].ver} \/ op[c].ver \in Ended \cup moved)
    [] e.says = "replaced" -> ans = "created" /\ msg # 0 /\ msg' = op[c].ver
    [] e.says = "waits" -> ans \in {"duplicate", "not its own"} /\ due
    [] e.says = "inflight" -> ~due /\ ans \in (IF e.verb = "schedule" THEN {"duplicate", "not its own"} ELSE {"toolate"})
    [] e.says = "unknown" -> ans \in {"unknown", "not its own"}
    [] OTHER -> ans = e.says
RunT ==
  LET c == e.call
      creates == msg' # 0 /\ msg' # msg
      moves == e.verb = "reschedule" /\ opDone'[c] /\ ~opDone[c] IN
  /\ e.is = "run" /\ c \in open /\ op[c].kind = e.verb /\ op[c].runs = (IF e.second THEN 1 ELSE 0)
  /\ CASE e.verb \in {"schedule", "replace"} /\ op[c].ver \in moved /\ msg # op[c].ver -> RunMoved(c)
       [] e.verb = "schedule" -> RunSchedule(c) [] e.verb = "replace" -> RunReplace(c) [] e.verb = "cancel" -> RunCancel(c) [] OTHER -> RunReschedule(c)
  /\ Says(c) /\ Has
  /\ IF creates \/ moves THEN e.due \in e.asked..(e.asked + 3) /\ at' = e.due ELSE SameDue
  /\ UNCHANGED <<taken, open>>
AnswerT ==
  LET c == e.call IN
  /\ e.is = "answer" /\ c \in open /\ open' = open \ {c} /\ UNCHANGED <<at, taken>>
  /\ CASE e.says = "unknown" -> UNCHANGED vars
       [] e.says = "refused" -> /\ op[c].kind # "none" /\ op[c].runs = 0 /\ op' = [op EXCEPT ![c] = NoOp]
                                /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,pol,published,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
       [] OTHER -> Reply(c) /\ (op[c].ans = e.says \/ (op[c].ans = "not its own" /\ e.says = "duplicate"))
ClaimT == /\ e.is = "claim" /\ nextTok = e.claim /\ Claim(e.claim) /\ Has /\ e.due = at
          /\ (e.now >= at \/ \E p \in Pollers : taken[p] = [ver |-> msg, due |-> at]) \* It was due, and the clock has been set back.
          /\ taken' = [taken EXCEPT ![e.claim] = [ver |-> msg, due |-> at]] /\ UNCHANGED <<at, open>>
PublishT == /\ e.is = "publish" /\ \E p \in e.claims : Publish(p) /\ e.due = taken[p].due
            /\ UNCHANGED <<at, taken, open>>
(* Delay's Unknown stores and returns in one step, and has no release of what was certainly not published. *)
Back(p) == /\ pol[p].pc # "idle" /\ Owns(p) /\ due' = TRUE /\ maybe' \in {maybe, TRUE} /\ (pol[p].pc = "acked" => maybe')
           /\ claims' = claims \ {p} /\ pol' = [pol EXCEPT ![p] = Idle]
           /\ UNCHANGED <<msg,nextTok,nextVer,published,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
SettleT == /\ e.is = "settle" /\ UNCHANGED <<taken, open>>
           /\ CASE e.how = "gone" -> Owns(e.claim) /\ Ack(e.claim) /\ Has /\ SameDue
                [] e.how = "back" -> Back(e.claim) /\ Has /\ SameDue
                [] e.how = "stale" -> e.claim < nextTok /\ UNCHANGED <<vars, at>> \* Another id of the claim may be why, so it may be live.
                [] OTHER -> FALSE
ReclaimT == /\ e.is = "reclaim" /\ e.claim \in claims /\ Reclaim /\ claims' = claims \ {e.claim} /\ Has /\ SameDue /\ UNCHANGED <<taken, open>>
(* Who hears that its claim has ended marks what it took and is still there. *)
MarkT == /\ e.is = "mark" /\ msg # 0 /\ \E p \in Pollers : (p \notin claims \/ p \in gone) /\ taken[p].ver = msg
         /\ maybe' = TRUE /\ Has /\ SameDue /\ UNCHANGED <<taken, open>>
         /\ UNCHANGED <<msg,due,claims,nextTok,nextVer,pol,published,op,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
(* All trouble is over, and nothing is left. *)
EndT == e.is = "end" /\ msg = 0 /\ claims = {} /\ open = {} /\ UNCHANGED <<vars, at, taken, open>>
(* Steps that no trace shows: the first run never came; and a run after the second is like the second. *)
Hidden == /\ e.is = "run" /\ e.second /\ UNCHANGED <<at, taken, open>>
          /\ \/ Lost(e.call)
             \/ /\ op[e.call].runs = 2 /\ op' = [op EXCEPT ![e.call].runs = 1]
                /\ UNCHANGED <<msg,due,maybe,claims,nextTok,nextVer,pol,published,opDone,nops,accepted,cancelled,cancelledMaybe,replaced,answers>>
Sound == CancelTrue /\ AnswerTrue /\ NoLoss /\ Body
NextT == /\ i <= Len(steps) /\ UNCHANGED <<trace, steps>>
         /\ \/ /\ StartT \/ RepeatT \/ RunT \/ AnswerT \/ ClaimT \/ PublishT \/ SettleT \/ ReclaimT \/ MarkT \/ EndT
               /\ i' = i + 1 /\ Sound' /\ PrintT(<<trace, i>>)
            \/ Hidden /\ i' = i
         /\ gone' = IF e.is = "settle" /\ e.how = "stale" THEN gone \cup {e.claim} ELSE gone
         /\ moved' = IF e.is = "run" /\ e.verb = "reschedule" /\ opDone'[e.call] /\ ~opDone[e.call] THEN moved \cup {msg} ELSE moved
SpecT == InitT /\ [][NextT]_allVars
=============================================================================
