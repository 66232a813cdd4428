------------------------------ MODULE Replace -------------------------------
(* The rows of one identity in an outbox, and its message in Redis. A message is scheduled where none lives; else a  *)
(* "replace" takes the place of the one that does: of any, or only of that whose cancel its transaction has seen.    *)
(* A relay asks Redis and then commits what it was told, or dies in between. Asked: who may go live, and when?       *)
EXTENDS Naturals, Sequences
CONSTANTS Rows,     \* how many there are at the most
          Waits,    \* while the message before it is in flight, a replace waits
          AsksAgain,\* and asks Redis again; else it waits for the row to be told
          Means,    \* one that has seen a cancel takes the place of that message only
          Newest    \* a cancel is about the newest message, a replace that is pending among them; else about the live one
VARIABLES row,    \* by number, which is the revision, and in Redis the token
          mine,   \* of each transaction: its rows that are not committed
          redis,  \* [of, place]: whose message it has, 0: none
          fate,   \* by number: how it has ended in Redis, "-": not
          copies, \* by number: what the broker has
          job     \* what the relay was told, for which operation
vars == <<row, mine, redis, fate, copies, job>>
Txs == {"a", "b"}
Numbers == 1..Len(row)
Seen(i, t) == \A other \in Txs \ {t} : i \notin mine[other]
Visible(i) == \A t \in Txs : i \notin mine[t]
IsLive(i) == row[i].state = "live"
IsPending(i) == row[i].state = "pending"
Max(S) == IF S = {} THEN 0 ELSE CHOOSE i \in S : \A j \in S : j <= i
Live == Max({i \in Numbers : Visible(i) /\ IsLive(i)})
Standing(t) == Max({i \in Numbers : Seen(i, t) /\ (IsLive(i) \/ (IsPending(i) /\ row[i].op = "replace"))})
Target(t) == IF Newest THEN Standing(t) ELSE Max({i \in Numbers : Seen(i, t) /\ IsLive(i)})
None == [of |-> 0, answer |-> "-"]
Init == row = <<>> /\ mine = [t \in Txs |-> {}] /\ redis = [of |-> 0, place |-> "-"] /\ fate = [i \in 1..Rows |-> "-"]
        /\ copies = [i \in 1..Rows |-> 0] /\ job = None
Add(t, op, target, state) ==
  /\ Len(row) < Rows
  /\ row' = Append(row, [op |-> op, target |-> target, state |-> state, meant |-> Standing(t)])
  /\ mine' = [mine EXCEPT ![t] = @ \cup {Len(row) + 1}] /\ UNCHANGED <<redis, fate, copies, job>>
(* The unique index: one message lives, also one that is not committed. *)
Taken == \E i \in Numbers : IsLive(i)
Schedule(t) == ~Taken /\ Add(t, "schedule", 0, "live")
Replace(t) == Standing(t) # 0 /\ Taken /\ Add(t, "replace", 0, "pending")
Follow(t) == /\ Standing(t) # 0 /\ Taken /\ Add(t, "replace", Standing(t), "pending")
             /\ \E i \in Numbers : Seen(i, t) /\ IsPending(i) /\ row[i].op = "cancel" /\ row[i].target = Standing(t)
Cancel(t) == Target(t) # 0 /\ Add(t, "cancel", Target(t), "pending")
Commit(t) == mine[t] # {} /\ mine' = [mine EXCEPT ![t] = {}] /\ UNCHANGED <<row, redis, fate, copies, job>>
(* the relay's first job, and the poller's *)
Put == /\ Live # 0 /\ redis.of = 0 /\ fate[Live] = "-" /\ job = None /\ redis' = [of |-> Live, place |-> "waits"]
       /\ ~\E i \in Numbers : Visible(i) /\ IsPending(i)
       /\ UNCHANGED <<row, mine, fate, copies, job>>
Claim == redis.place = "waits" /\ redis' = [redis EXCEPT !.place = "flight"] /\ UNCHANGED <<row, mine, fate, copies, job>>
Release == redis.place = "flight" /\ redis' = [redis EXCEPT !.place = "waits"] /\ UNCHANGED <<row, mine, fate, copies, job>>
Publish == /\ redis.place = "flight" /\ redis' = [of |-> 0, place |-> "-"] /\ fate' = [fate EXCEPT ![redis.of] = "published"]
           /\ copies' = [copies EXCEPT ![redis.of] = @ + 1] /\ UNCHANGED <<row, mine, job>>
(* the settler leaves an identity alone of which an operation is pending *)
Settle == /\ Live # 0 /\ fate[Live] = "published" /\ job = None /\ ~\E i \in Numbers : Visible(i) /\ IsPending(i)
          /\ row' = [row EXCEPT ![Live].state = "published"] /\ UNCHANGED <<mine, redis, fate, copies, job>>
(* the relay, the lowest number first *)
First == CHOOSE i \in Numbers : Visible(i) /\ IsPending(i) /\ \A j \in Numbers : Visible(j) /\ IsPending(j) => i <= j
Some == \E i \in Numbers : Visible(i) /\ IsPending(i)
Asks(i) == Live # 0 /\ IF row[i].op = "cancel" THEN row[i].target = Live ELSE row[i].target = 0 \/ row[i].target = Live \/ ~Means
Ask == /\ Some /\ job = None /\ Asks(First) /\ (row[First].op = "cancel" \/ AsksAgain \/ redis.of # 0)
       /\ LET gone == redis.of = Live /\ redis.place = "waits"
              answer == IF redis.of = Live /\ redis.place = "flight" THEN "flight"
                        ELSE IF fate[Live] = "published" THEN "published" ELSE "done"  \* here, or not yet
          IN /\ job' = [of |-> First, answer |-> answer]
             /\ redis' = IF gone THEN [of |-> 0, place |-> "-"] ELSE redis
             /\ fate' = IF answer = "done" THEN [fate EXCEPT ![Live] = "cancelled"] ELSE fate
       /\ UNCHANGED <<row, mine, copies>>
Die == job # None /\ job' = None /\ UNCHANGED <<row, mine, redis, fate, copies>>
Tell == /\ job # None /\ job' = None /\ UNCHANGED <<mine, redis, fate, copies>>
        /\ LET i == job.of  end == IF job.answer = "published" THEN "published" ELSE "cancelled"
           IN row' = CASE row[i].op = "cancel" /\ job.answer = "flight" -> [row EXCEPT ![i].state = "too late"]
                       [] row[i].op = "cancel" -> [row EXCEPT ![Live].state = end, ![i].state = IF end = "published" THEN "too late" ELSE "done"]
                       [] row[i].op = "replace" /\ job.answer = "flight" /\ Waits -> row
                       [] OTHER -> [row EXCEPT ![Live].state = end, ![i].state = "live"]
(* by the table alone *)
Judge == /\ Some /\ job = None /\ ~Asks(First) /\ UNCHANGED <<mine, redis, fate, copies, job>>
         /\ LET i == First  t == row[i].target
            IN row' = [row EXCEPT ![i].state =
                 CASE row[i].op = "replace" -> IF Live = 0 /\ ~Taken THEN "live" ELSE IF Live = 0 THEN "pending" ELSE "refused"
                   [] row[t].state = "cancelled" -> "done"
                   [] OTHER -> "told"]
Next == \/ \E t \in Txs : Schedule(t) \/ Replace(t) \/ Follow(t) \/ Cancel(t) \/ Commit(t)
        \/ Put \/ Claim \/ Release \/ Publish \/ Settle \/ Ask \/ Die \/ Tell \/ Judge
Spec == Init /\ [][Next]_vars
Fair == /\ \A t \in Txs : WF_vars(Commit(t))
        /\ WF_vars(Put) /\ WF_vars(Claim) /\ SF_vars(Publish) /\ WF_vars(Settle) /\ SF_vars(Tell) /\ SF_vars(Ask) /\ WF_vars(Judge)
FairSpec == Spec /\ Fair
IsMessage(i) == row[i].op # "cancel"
One == \A i, j \in Numbers : IsLive(i) /\ IsLive(j) => i = j
Once == \A i \in Numbers : copies[i] <= 1
(* What is said to be cancelled was not published and never will be. *)
Cancelled == \A i \in Numbers : row[i].state = "cancelled" => copies[i] = 0 /\ redis.of # i
(* Nor will the message that stood there when a cancel was written that says "done". *)
CancelTrue == \A i \in Numbers : row[i].op = "cancel" /\ row[i].state = "done" => copies[row[i].meant] = 0
(* A message ends unpublished only by a cancel of it, or by a replace that may take its place. *)
NoLoss == \A i \in Numbers : IsMessage(i) /\ row[i].state = "cancelled" =>
  \E j \in Numbers : row[j].target = i \/ (row[j].op = "replace" /\ row[j].target = 0 /\ j # i)
(* A replace of any message is never refused. *)
NotRefused == \A i \in Numbers : row[i].state = "refused" => row[i].op = "replace" /\ row[i].target # 0
(* A message is published only after the one whose place it took has ended. *)
After == \A i \in Numbers : copies[i] > 0 => row[i].state \in {"live", "published"}
Ends == \A i \in 1..Rows : (i <= Len(row) /\ row[i].op = "replace") ~> (i <= Len(row) /\ row[i].state \notin {"pending", "live"})
=============================================================================
