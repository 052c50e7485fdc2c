package feedstore.trim;

import java.lang.reflect.Proxy;
import java.util.Map;

/** Fakes of HBase's interfaces, most of whose methods are never called. */
final class Fakes {
  private Fakes() {}

  /** Answers the named methods, and fails on every other one. */
  static <T> T of(Class<T> type, Map<String, ?> answers) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (proxy, method, arguments) -> {
              if (!answers.containsKey(method.getName())) {
                throw new UnsupportedOperationException(method.toString());
              }
              return answers.get(method.getName());
            }));
  }
}
