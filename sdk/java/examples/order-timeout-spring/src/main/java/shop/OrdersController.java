package shop;

import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;

/** The shop's own API. */
@RestController
class OrdersController {
    private final Orders orders;

    OrdersController(Orders orders) {
        this.orders = orders;
    }

    @PostMapping("/orders/{order}")
    void place(@PathVariable String order) {
        orders.place(order);
    }

    @PostMapping("/orders/{order}/payment")
    boolean pay(@PathVariable String order) {
        return orders.pay(order);
    }

    @GetMapping("/orders/{order}")
    String state(@PathVariable String order) {
        return orders.state(order);
    }
}
