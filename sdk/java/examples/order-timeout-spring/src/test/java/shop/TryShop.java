package shop;

import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.core.env.MapPropertySource;

/** Starts all of it, to try it out: run.sh. */
final class TryShop {
    private TryShop() {}

    public static void main(String[] args) throws Exception {
        Surroundings surroundings = new Surroundings(System.getenv("DELAYBRIDGE_TEST_POSTGRES_URL"));
        SpringApplication shop = new SpringApplication(ShopApplication.class);
        shop.setDefaultProperties(Map.of("spring.main.banner-mode", "off", "server.port", "8090"));
        shop.addInitializers(context -> context.getEnvironment()
                .getPropertySources()
                .addFirst(new MapPropertySource("surroundings", surroundings.properties())));
        shop.run(args);
        System.out.printf(
                """

                Place an order, let half an hour pass, and see that it is called off:

                  curl -X POST http://127.0.0.1:8090/orders/42
                  curl -X POST %s/dev/clock/advance -d '{"by": "31m"}'
                  curl http://127.0.0.1:8090/orders/42

                Ctrl-C ends it.
                """,
                surroundings.bridge.url());
    }
}
