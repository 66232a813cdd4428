package shop;

import io.github.delaybridge.Client;
import io.github.delaybridge.Due;
import io.github.delaybridge.DuplicateException;
import io.github.delaybridge.Message;
import io.github.delaybridge.NotFoundException;
import io.github.delaybridge.ScheduleResult;
import io.github.delaybridge.TooLateException;
import java.time.Duration;

/** Schedules a message, puts it off, and cancels it. */
final class Reminder {
    private Reminder() {}

    static void run(String server) {
        Client client = Client.builder().servers(server).queue("orders").build();
        Message reminder = Message.builder("order.timeout")
                .id("order-42/timeout")
                .after(Duration.ofMinutes(30))
                .body("{\"order\": 42}")
                .build();
        try {
            ScheduleResult result = client.schedule(reminder);
            System.out.println(result.id() + " is due in 30 minutes");
        } catch (DuplicateException e) {
            System.out.println("it waits already, until " + e.dueAt());
        }
        client.reschedule(reminder.ref(), Due.after(Duration.ofHours(2)));
        try {
            client.cancel(reminder.ref());
            System.out.println("cancelled: it will never be published");
        } catch (NotFoundException | TooLateException e) {
            System.out.println("it is out: " + e.getMessage());
        }
    }

    public static void main(String[] args) {
        run(args[0]);
    }
}
